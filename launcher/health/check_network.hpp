#pragma once
// Checks the network adapters of the node: is each up, at its full rate and at its full PCIe width? Reads
// /sys only.
#include "launcher/health/check_input.hpp"

namespace holdfast::launcher {

/// Devices that the cluster file names must exist, be up, and be as fast as the others; without a
/// cluster file devices that are down are a warning.
std::vector<Finding> check_rdma(const Roots& roots, const Expected& expected);
/// Checks the control interface, or, without a cluster file, every interface with a carrier.
std::vector<Finding> check_interface(const Roots& roots, const Expected& expected);
/// Compares the lanes of RDMA adapters and NVMe disks with those that both ends support. GPUs: see
/// check_gpu.hpp.
std::vector<Finding> check_pcie(const Roots& roots, const Expected& expected);

}  // namespace holdfast::launcher

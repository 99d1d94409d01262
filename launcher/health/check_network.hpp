#pragma once
// Network adapters of the node: is each up, at its full rate and at its full PCIe width? Read from /sys
// alone.
#include "launcher/health/look.hpp"

namespace holdfast::launcher {

/// Devices that the cluster file's GPUs name must be there and up, and as fast as the others; without a
/// cluster file devices that are down are a warning.
std::vector<Finding> check_rdma(const Roots& roots, const Expected& expected);
/// The control interface, or, without a cluster file, every interface with a carrier.
std::vector<Finding> check_interface(const Roots& roots, const Expected& expected);
/// Lanes of RDMA adapters and NVMe disks, against what both ends could have. GPUs: see check_gpu.hpp.
std::vector<Finding> check_pcie(const Roots& roots, const Expected& expected);

}  // namespace holdfast::launcher

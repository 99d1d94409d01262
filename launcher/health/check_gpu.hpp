#pragma once
// Checks the GPUs: are all present, and is each fit to train? One finding per check, naming the GPUs that
// fail it.
#include "launcher/health/check_input.hpp"
#include "launcher/health/nvml.hpp"

namespace holdfast::launcher {

/// NVIDIA GPUs on the PCI bus, whether or not their driver sees them.
int gpus_on_bus(const Roots& roots);

/// Pure. Limits: a GPU is reset for pending row remaps and replaced for failed ones; after more than 4
/// uncorrected errors in its life it should be replaced (NVIDIA's GPU debug guidelines). Values that a driver
/// does not report are not checked.
std::vector<Finding> gpu_findings(const NvmlFacts& facts, int on_bus, const Expected& expected);

std::vector<Finding> check_gpus(const Roots& roots, const Expected& expected);

}  // namespace holdfast::launcher

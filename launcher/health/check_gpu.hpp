#pragma once
// Checks the GPUs: are all present, and is each fit to train? One finding per check, naming the GPUs that
// fail it.
#include "launcher/health/check_input.hpp"
#include "launcher/health/nvml.hpp"

namespace holdfast::launcher {

/// NVIDIA GPUs on the PCI bus, whether or not their driver sees them.
int gpus_on_bus(const Roots& roots);

/// Pure. NVIDIA replaces a GPU whose remap of a row has failed or whose SRAM errors have exceeded the
/// driver's threshold (GPU Memory Error Management; GPU Debug Guidelines), however many errors it had in its
/// life; a pending remap only needs a reset when the GPU is idle. Values that a driver does not report are
/// not checked.
std::vector<Finding> gpu_findings(const NvmlFacts& facts, int on_bus, const Expected& expected);

std::vector<Finding> check_gpus(const Roots& roots, const Expected& expected);

}  // namespace holdfast::launcher

#pragma once
// GPUs: are all there, and is each fit to train? One finding per question, naming the GPUs that fail it.
#include "launcher/health/look.hpp"
#include "launcher/health/nvml.hpp"

namespace holdfast::launcher {

/// NVIDIA GPUs on the PCI bus, whether or not their driver sees them.
int gpus_on_bus(const Roots& roots);

/// Pure. Limits: a GPU is reset for pending row remaps and replaced for failed ones; more than 4 uncorrected
/// errors in its life speak for replacement (NVIDIA's GPU debug guidelines). What a driver does not tell is
/// left out.
std::vector<Finding> gpu_findings(const NvmlFacts& facts, int on_bus, const Expected& expected);

std::vector<Finding> check_gpus(const Roots& roots, const Expected& expected);

}  // namespace holdfast::launcher

#pragma once
// This machine as a cluster of one node, for local runs: what a cluster file would say of it.
#include "src/config/cluster_facts.hpp"

namespace holdfast::launcher {

/// The name of such a cluster. With a blank, as no cluster of SLURM has it.
inline constexpr const char* local_machine = "this machine";

/// Does NVIDIA's driver report a GPU?
bool has_gpus(const config::ClusterFacts& machine);

/// `node`: its name. `ranks` share its memory where there is no GPU; a node without GPUs takes as many ranks
/// as it has CPUs, or `ranks` if that is more.
/// It has only the GPUs that CUDA_VISIBLE_DEVICES names, where that is set.
config::ClusterFacts facts_of_this_machine(const std::string& node, int ranks);

}  // namespace holdfast::launcher

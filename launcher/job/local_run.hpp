#pragma once
// `holdfast run --local`: a run on this machine alone, with the same agent, run directory and events as on a
// cluster. Its one node is not replaced; a rank that fails or hangs is started again.
#include "src/config/load.hpp"

namespace holdfast::launcher {

/// The settings as a run on one machine has them: one active node, no spare, nothing of SLURM. Without GPUs
/// and without cluster.ranks_per_node it has one rank. Throws Error (usage) for what only a job can do: more
/// nodes that were asked for by an option, an image. Pure.
config::RunConfig on_one_node(config::Loaded loaded, bool has_gpus);

/// Prepares the run and stays until it is over; returns its exit code. SIGINT, SIGTERM and SIGHUP save its
/// state and end it with 75. `machine`: in the place of a cluster file. Throws Error before anything was
/// started.
int run_here(const config::RunConfig& config, const config::ClusterFacts& machine);

}  // namespace holdfast::launcher

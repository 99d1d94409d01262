#pragma once
// Before training: what the command line and the place say this rank should do.
#include <optional>
#include <string>
#include <vector>

#include "src/base/rank_env.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/load.hpp"

namespace holdfast::train {

/// holdfast-train job.toml [--set key=value]... [--run-dir DIR]; started by an agent it needs no arguments.
struct Arguments {
  std::string job;                ///< job file; empty under an agent
  std::vector<std::string> sets;  ///< "table.key=value"
  std::string run_dir;            ///< overrides run.dir
};

/// Where this rank is: what the agent said, or what MPI says in bare mode.
struct Place {
  int rank = 0, world = 1, ranks_per_node = 1;
  std::optional<RankEnv> agent;
};

/// Everything a trainer needs to know, the same on every rank.
struct Setup {
  config::RunConfig config;
  config::ModelShape shape;
  RunDir dir;
  Place place;
  std::optional<config::ClusterFacts> cluster;  ///< none: the run directory has no cluster file
  /// Bare mode, on rank 0: what the run directory held before this start.
  std::optional<config::RunConfig> earlier;
};

/// Reads the settings: of the run directory under an agent, else of the job file, where nodes and ranks per
/// node become what MPI has started. Throws Error (usage). Touches nothing.
Setup read_setup(const Arguments& arguments, const Place& place);

/// What the settings left open until the device was known, and the rules about it. Throws Error (usage).
void settle_arithmetic(Setup& setup, bool on_gpu);

/// Bare mode, collective: rank 0 makes the run directory, takes its lock for the life of the process (two
/// runs in one directory would overwrite each other) and writes a secret and the resolved settings into it.
/// Under an agent: nothing to do. The lock is given back when the process ends.
void claim_run_directory(Setup& setup, comm::Communicator& world);

}  // namespace holdfast::train

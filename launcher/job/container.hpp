#pragma once
// The image in which the agents run ([container]), by pyxis or Apptainer: what it shows of the node, and the
// step that starts agents in it.
#include <filesystem>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// Options of pyxis among those for sbatch (slurm.extra), which would put the batch script into the image,
/// become settings of [container]. Throws Error (usage) when another runtime is set.
void take_container_options(config::RunConfig& config);

/// What can be known of an image before a job starts. `program`: this one. Throws Error (usage) when agents
/// could not start in it; returns warnings.
std::vector<std::string> check_image(const config::RunConfig& config, const RunDir& run,
                                     const std::filesystem::path& program);

/// Throws Error (usage) when this machine has no such runtime. `on_node`: the agents' nodes are like it;
/// Apptainer need not be where jobs are submitted.
void check_runtime(const config::Container& container, bool on_node);

/// What agents and ranks need of the node, "SOURCE:TARGET", then the mounts of the settings. Looks at the
/// files: what is absent is left out, and what a link names comes along.
std::vector<std::string> mounts_of(const config::RunConfig& config, const config::ClusterFacts& facts,
                                   const RunDir& run, const std::filesystem::path& program);

/// Puts a step into the image of the settings, if they name one. `mounts`: mounts_of.
void run_in_image(slurm::StepRequest& request, const config::RunConfig& config,
                  const std::vector<std::string>& mounts);

}  // namespace holdfast::launcher

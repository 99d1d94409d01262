#pragma once
// How `submit` sets up a run directory, in order: check, claim (run_owner.hpp), write. No existing state is
// lost.
#include <optional>
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// The files that a run directory has from the start.
struct RunFiles {
  config::RunConfig config;  ///< resolved, paths absolute
  config::ModelShape model;
  config::ClusterFacts facts;
  std::string plan;    ///< plan.json
  std::string script;  ///< job.sbatch
};

/// run.dir as an absolute path without links, whether it exists or not; relative to the working folder. Not
/// set: runs/NAME, by the run's name, in which all but letters, digits, '.' and '_' is '-'. Throws Error
/// (usage) when it is not set or cannot be used.
RunDir run_dir_of(const config::RunConfig& config);

/// The settings as they are stored: model and cluster file in the run directory, data.tokens, model.weights,
/// lora.weights, run.resume, checkpoint.files_in, rank.directory and a program with a folder in its name
/// (rank.command) absolute.
config::RunConfig with_absolute_paths(config::RunConfig config, const RunDir& run);

/// Whether `job` owns the directory already: a user's own script names the job file again when its job is
/// requeued.
bool was_requeued(const RunDir& run, std::optional<slurm::JobId> job);

/// Throws Errors for all that preflight finds, of `job` if it owns the directory. Reads only; nothing needs
/// to exist.
void check_run_dir(const RunDir& run, const RunFiles& files, std::optional<slurm::JobId> job = {});

/// Makes the directory (0750 or less, as the umask says; see files::close_folder) and its folders.
/// Idempotent. Throws Error where another user has, or may have, put something there (require_own_run).
void create_folders(const RunDir& run);
/// Writes config, model, cluster, plan and script, and the secret if there is none yet. The directory must be
/// claimed.
void write_run_files(const RunDir& run, const RunFiles& files);

}  // namespace holdfast::launcher

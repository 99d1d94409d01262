#pragma once
// Prepares a run: makes the files of its directory and its job from the settings.
#include "launcher/job/run_dir_setup.hpp"
#include "launcher/plan/plan.hpp"
#include "slurm/cluster.hpp"
#include "slurm/job_env.hpp"
#include "src/preflight/problems.hpp"

namespace holdfast::launcher {

/// A job as `plan`, `submit` and `run` see it, with all that is wrong with it.
struct Look {
  RunDir run;
  RunFiles files;            ///< but for the script
  std::optional<Plan> plan;  ///< none: the settings are wrong, or nothing of the kind can be run
  std::optional<std::int64_t> samples_of_epoch;  ///< none: not known here, or there are no epochs
  preflight::Problems problems;
};

/// Nodes that are planned for.
struct NodeChoice {
  std::vector<std::string> on;                               ///< empty: as the cluster file describes them
  std::vector<std::string> without;                          ///< of these, none
  std::optional<config::ClusterFacts> facts = std::nullopt;  ///< in the place of the cluster file's
  std::optional<std::string> batch_host = std::nullopt;      ///< SLURM has given these nodes, and this is it
};

/// Looks at everything that can be looked at without SLURM. `sbatch`: further flags of the job. Writes
/// nothing. Throws Errors where it can look no further: there is no such cluster or model, or no run
/// directory can be named.
Look look_at(config::RunConfig config, const std::vector<std::string>& sbatch = {},
             const NodeChoice& choice = {});

struct Preparation {
  RunDir run;
  RunFiles files;
  Plan plan;                     ///< for the nodes of NodeChoice
  slurm::Submission submission;  ///< the job that would be submitted
};

/// Throws Errors with all that look_at() found.
Preparation prepare(config::RunConfig config, const std::vector<std::string>& sbatch = {},
                    const NodeChoice& choice = {});

/// Throws Error (usage) when the cluster file is the minipod's, as where a job names none, and SLURM calls
/// its cluster otherwise. Where SLURM does not say its name, warns.
void check_cluster_file(const config::ClusterFacts& facts);

/// The plan as the run directory's group may read it: of variables that a user has set, only the names, and
/// of another program's command no arguments.
Plan plan_for_group(Plan plan, const config::RunConfig& config);

/// For a job that will continue the run when other jobs of it have ended. Throws Error (usage) when its
/// settings are not those of the run: they are in the run directory, which belongs to those jobs. Options of
/// sbatch may differ.
void check_same_run(const Preparation& prepared);

/// For a job of a script of one's own: an earlier job has done this run, with the same settings.
bool is_done(const Preparation& prepared, const slurm::JobEnv& env);

/// Called by the job itself: takes the run directory, unless the job owns it already, and writes its files.
/// Throws Error as RunDirClaim does.
void take_run_dir(const Preparation& prepared, slurm::JobId job, slurm::Cluster& cluster);

}  // namespace holdfast::launcher

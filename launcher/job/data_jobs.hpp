#pragma once
// `holdfast data submit`: runs the stages of `data prepare` as a chain of jobs. Stages that process the parts
// are arrays.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/cluster.hpp"
#include "slurm/stage_script.hpp"

namespace holdfast::launcher {

struct DataStage {
  std::string name;
  bool by_parts = false;
};

/// The output of `holdfast-tool data prepare --plan-json`.
struct DataPlan {
  std::filesystem::path work;  ///< OUTPUT.work, absolute
  int parts = 0;
  std::vector<DataStage> stages;
};
/// Throws Error (runtime) when it cannot be read.
DataPlan read_data_plan(std::string_view json);

/// The arguments of `holdfast data submit`.
struct DataSubmit {
  std::vector<std::string> prepare;  ///< for `data prepare`
  std::vector<std::string> sbatch;   ///< after "--"
  int tasks = 0;
  bool dry_run = false, parsable = false, help = false;
};
/// Throws Error (usage).
DataSubmit read_data_submit(const std::vector<std::string>& typed);

/// The folder of the jobs' scripts and logs, which stay when the work folder is removed.
std::filesystem::path data_jobs_folder(const DataPlan& plan);

/// One for each stage, in order. `tool`: absolute; `folder`: the working folder of the command.
std::vector<slurm::StageJob> data_jobs(const DataPlan& plan, const DataSubmit& options,
                                       const std::filesystem::path& tool,
                                       const std::filesystem::path& folder);
/// The path of the script.
std::filesystem::path script_of(const DataPlan& plan, const slurm::StageJob& job);

/// Writes the scripts and submits them, each dependent on the one before. When one is refused, those before
/// it are cancelled, and the Error is thrown.
std::vector<slurm::JobId> submit_data_jobs(const DataPlan& plan, const std::vector<slurm::StageJob>& jobs,
                                           slurm::Cluster& cluster);

}  // namespace holdfast::launcher

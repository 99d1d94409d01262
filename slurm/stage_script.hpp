#pragma once
// Batch jobs for the consecutive stages of a task, some as job arrays: the text of a script and sbatch's
// arguments. Pure.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

struct StageJob {
  std::string name;  ///< of the stage, a word
  int tasks = 0;     ///< of its array; 0: the job is one process
  std::vector<std::string>
      command;               ///< the program and its arguments; "--stage NAME" and "--task I/N" are appended
  bool add_workers = false;  ///< "--workers" with the number of CPUs from SLURM is appended, too
  std::filesystem::path folder;    ///< absolute: where it starts
  std::filesystem::path logs;      ///< absolute: folder for the script's output
  std::vector<std::string> extra;  ///< further sbatch arguments; see joined()
};

/// A script that executes (exec) the command.
std::string stage_script(const StageJob& job);
/// sbatch's arguments, without the script. The job waits until all jobs of `after` have succeeded; SLURM
/// drops it when one of them fails.
std::vector<std::string> stage_arguments(const StageJob& job, std::optional<JobId> after);

}  // namespace holdfast::slurm

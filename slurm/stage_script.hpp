#pragma once
// Batch jobs that do one stage of a piece of work after the other, some by the tasks of an array: the text of
// a script and sbatch's arguments. Pure.
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
      command;               ///< the program and its arguments; "--stage NAME" and "--task I/N" come behind
  bool add_workers = false;  ///< "--workers" with the CPUs that SLURM gave comes behind, too
  std::filesystem::path folder;    ///< absolute: where it starts
  std::filesystem::path logs;      ///< absolute: folder for the script's output
  std::vector<std::string> extra;  ///< further sbatch arguments; see joined()
};

/// A script that becomes the command.
std::string stage_script(const StageJob& job);
/// sbatch's arguments, without the script. The job waits until all of `after` has ended well, and is dropped
/// when it has not.
std::vector<std::string> stage_arguments(const StageJob& job, std::optional<JobId> after);

}  // namespace holdfast::slurm

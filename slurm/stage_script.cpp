#include "slurm/stage_script.hpp"

#include <fmt/format.h>

#include "slurm/batch_script.hpp"
#include "slurm/commands.hpp"

namespace holdfast::slurm {

std::string stage_script(const StageJob& job) {
  std::string words;
  for (const std::string& word : job.command) words += single_quoted(word) + " ";
  words += "--stage " + job.name;
  if (job.tasks > 0) words += fmt::format(" --task \"$SLURM_ARRAY_TASK_ID/{}\"", job.tasks);
  if (job.add_workers) words += " --workers \"${SLURM_CPUS_ON_NODE:-1}\"";
  return fmt::format(
      "#!/bin/bash\n"
      "# Written by `holdfast data submit`. What is done stays done: the same command may be submitted "
      "again.\n"
      "#SBATCH --nodes=1 --ntasks=1 --requeue --open-mode=append\n"
      "exec {}\n",
      words);
}

std::vector<std::string> stage_arguments(const StageJob& job, std::optional<JobId> after) {
  check_path("the folder of logs", job.logs);
  std::vector<std::string> arguments = {
      "--job-name=data-" + job.name, "--chdir=" + job.folder.string(),
      "--output=" + file_pattern(job.logs) + (job.tasks > 0 ? "/%x-%A_%a.log" : "/%x-%j.log")};
  if (job.tasks > 0) arguments.push_back(fmt::format("--array=0-{}", job.tasks - 1));
  if (after) {
    arguments.push_back(fmt::format("--dependency=afterok:{}", *after));
    arguments.push_back("--kill-on-invalid-dep=yes");
  }
  const auto extra = joined(job.extra);
  arguments.insert(arguments.end(), extra.begin(), extra.end());
  return arguments;
}

}  // namespace holdfast::slurm

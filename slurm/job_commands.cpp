#include "slurm/job_commands.hpp"

namespace holdfast::slurm {

std::vector<std::string> signal_script_argv(JobId id, const std::string& signal) {
  return {"scancel", "--batch", "--signal=" + signal, std::to_string(id)};
}

std::vector<std::string> signal_all_argv(JobId id, const std::string& signal) {
  return {"scancel", "--full", "--signal=" + signal, std::to_string(id)};
}

std::vector<std::string> start_now_argv(JobId id) {
  return {"scontrol", "update", "JobId=" + std::to_string(id), "StartTime=now"};
}

}  // namespace holdfast::slurm

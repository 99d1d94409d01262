#include "slurm/commands.hpp"

#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

constexpr std::string_view queue_format = "%A|%T|%r|%S|%o";
constexpr std::string_view node_format = "--format=%N|%T|%o|%E";

}  // namespace

std::string file_pattern(const std::filesystem::path& path) {
  std::string out;
  for (const char c : path.string()) {
    out += c;
    if (c == '%') out += c;
  }
  return out;
}

std::vector<std::string> version_argv() { return {"sinfo", "--version"}; }

std::vector<std::string> submit_argv(const Submission& submission) {
  std::vector<std::string> argv = {"sbatch", "--parsable"};
  argv.insert(argv.end(), submission.arguments.begin(), submission.arguments.end());
  // A script called "-x" would be read as an option; an absolute path cannot be.
  expects(submission.script.is_absolute(), "a batch script is named by its absolute path");
  argv.push_back(submission.script.string());
  return argv;
}

std::vector<std::string> job_argv(JobId id) {
  return {"squeue", "--noheader", "--all", "--states=all", "--jobs=" + std::to_string(id),
          // An array's task by its own number, where %i says "17_2".
          "--format=%A|%T|%r|%N|%B|%e|%j"};
}

std::vector<std::string> task_argv(const std::string& name) {
  return {"squeue", "--noheader", "--all", "--states=all", "--jobs=" + name, "--format=%A|%F|%K"};
}

std::vector<std::string> queued_job_argv(JobId id) {
  return {"squeue",
          "--noheader",
          "--all",
          "--states=all",
          "--jobs=" + std::to_string(id),
          "--format=" + std::string(queue_format)};
}

std::vector<std::string> own_jobs_argv() {
  return {"squeue", "--noheader", "--all", "--me", "--format=" + std::string(queue_format)};
}

std::vector<std::string> scripts_argv() {
  return {"squeue", "--noheader", "--all", "--me", "--format=%A|%T|%o"};
}

std::vector<std::string> nodes_argv(const std::vector<std::string>& names) {
  return {"sinfo", "--noheader", "--all", "--Node", "--nodes=" + compress(names), std::string(node_format)};
}

std::vector<std::string> cancel_argv(const JobName& job) { return {"scancel", job.text()}; }

std::vector<std::string> steps_argv(const JobName& job) {
  return {"squeue", "--noheader", "--all", "--steps", "--jobs=" + job.text(), "--format=%i|%j"};
}

std::vector<std::string> signal_steps_argv(const std::vector<std::string>& steps, int signal) {
  std::vector<std::string> argv = {"scancel", "--signal=" + std::to_string(signal)};
  argv.insert(argv.end(), steps.begin(), steps.end());
  return argv;
}

std::vector<std::string> preemption_argv(const JobName& job) {
  return {"squeue", "--noheader", "--all", "--jobs=" + job.text(), "--Format=PreemptTime:32"};
}

std::vector<std::string> processes_argv(JobId id, const std::string& node) {
  return {"scontrol", "listpids", std::to_string(id), node};
}

std::vector<std::string> requeue_argv(const JobName& job) { return {"scontrol", "requeue", job.text()}; }

std::vector<std::string> job_constraints_argv(const JobName& job) {
  return {"squeue", "--noheader", "--all", "--states=all", "--jobs=" + job.text(), "--format=%P|%x"};
}

std::vector<std::string> partition_argv(const std::string& partition) {
  // Without --all, which sinfo refuses beside --partition: a partition that is named is shown, hidden or not.
  return {"sinfo", "--noheader", "--Node", "--partition=" + partition, std::string(node_format)};
}

std::vector<std::string> details_argv(JobId id) {
  return {"scontrol", "--details", "show", "job", std::to_string(id)};
}

std::vector<std::string> wait_for_argv(const JobName& job, const JobName& other) {
  return {"scontrol", "update", "JobId=" + job.text(), "Dependency=afterany:" + other.text()};
}

std::vector<std::string> exclude_argv(const JobName& job, const std::vector<std::string>& nodes) {
  return {"scontrol", "update", "JobId=" + job.text(), "ExcNodeList=" + compress(nodes)};
}

std::vector<std::string> comment_argv(const JobName& job) {
  return {"squeue", "--noheader", "--all", "--states=all", "--jobs=" + job.text(), "--format=%k"};
}

std::vector<std::string> set_comment_argv(const JobName& job, const std::string& text) {
  return {"scontrol", "update", "JobId=" + job.text(), "Comment=" + text};
}

std::vector<std::string> drain_argv(const std::string& node, const std::string& reason) {
  return {"scontrol", "update", "nodename=" + node, "state=drain", "reason=" + reason};
}

std::vector<std::string> step_argv(const StepRequest& request) {
  expects(request.job > 0 && !request.nodes.empty() && !request.command.empty(),
          "a step has a job, nodes and a command");
  for (const auto& node : request.nodes) expects(expand(node).size() == 1, "a node is named by itself");
  const std::string count = std::to_string(request.nodes.size());
  // No --cpus-per-task: without it a step has every CPU of the job on the node. SLURM may refuse a number,
  // for it may reserve cores, and the job may use one thread of each core.
  std::vector<std::string> argv = {
      "srun",
      "--jobid=" + std::to_string(request.job),
      "--nodelist=" + compress(request.nodes),
      "--nodes=" + count,
      "--ntasks=" + count,
      "--ntasks-per-node=1",
      "--overlap",  // although a step may still "run" on a node whose failure SLURM has not noticed
      "--no-kill",  // the step survives the failure of other nodes
      "--kill-on-bad-exit=0",
      "--wait=0",
      "--mem=0",  // all memory of the job on the node
      "--cpu-bind=none",
      "--mpi=none",
      "--export=ALL",
      "--input=none",
      "--quiet"};
  if (!request.name.empty()) argv.push_back("--job-name=" + request.name);
  if (request.gpus > 0) argv.push_back("--gres=gpu:" + std::to_string(request.gpus));
  if (!request.output.empty()) {
    // Opened by slurmstepd on the node: output through srun hangs a step when srun's host is cut off.
    argv.push_back("--open-mode=append");
    std::string pattern = file_pattern(request.output);
    if (const auto node = pattern.find(node_in_path); node != std::string::npos)
      pattern.replace(node, node_in_path.size(), "%N");
    argv.push_back("--output=" + pattern);
    argv.push_back("--error=" + pattern);
  }
  argv.insert(argv.end(), request.options.begin(), request.options.end());
  argv.insert(argv.end(), request.command.begin(), request.command.end());
  return argv;
}

std::vector<std::string> step_help_argv() { return {"srun", "--help"}; }

}  // namespace holdfast::slurm

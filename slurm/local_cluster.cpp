#include "slurm/local_cluster.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "slurm/cluster_cli.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Exit::impossible, "a local run cannot " + what, "there is no queue on this machine",
              "Submit the run to SLURM?");
}

}  // namespace

std::string LocalCluster::node_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string whole = host.data(), name = whole.substr(0, whole.find('.'));
  const bool fit = !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
  return fit ? name : "localhost";
}

JobEnv LocalCluster::job_env(JobId job) {
  JobEnv env;
  env.job = job;
  env.node = node_name();
  env.nodes = {env.node};
  env.interactive = true;  // no script is around it that would start it again
  return env;
}

std::string LocalCluster::version(milliseconds) { return "none"; }

JobId LocalCluster::submit(const Submission&, milliseconds) { refuse("submit a job"); }

std::optional<Job> LocalCluster::job(JobId id, milliseconds) {
  Job job;
  job.id = id;
  job.state = JobState::running;
  job.state_text = "RUNNING";
  job.nodes = {node_name()};
  return job;
}

std::vector<JobId> LocalCluster::jobs_of_script(const std::filesystem::path&, milliseconds) { return {}; }

std::optional<std::filesystem::path> LocalCluster::script_of_job(JobId, milliseconds) { return std::nullopt; }

std::vector<Node> LocalCluster::nodes(const std::vector<std::string>& names, milliseconds) {
  std::vector<Node> out;
  for (const auto& name : names) {
    if (name != node_name())
      throw Error(Exit::usage, "there is no node called '" + name + "'",
                  "a local run has this machine alone");
    Node node;
    node.name = name;
    node.address = "127.0.0.1";
    node.state_text = "ALLOCATED";
    node.usable = true;
    out.push_back(node);
  }
  return out;
}

std::map<std::string, int> LocalCluster::gpus(JobId, milliseconds) { return {}; }

JobName LocalCluster::called(JobId id, milliseconds) { return id; }

std::optional<JobId> LocalCluster::number_of(const std::string&, milliseconds) { return std::nullopt; }

void LocalCluster::cancel(JobId, milliseconds) { refuse("be cancelled by SLURM"); }

void LocalCluster::signal_steps(JobId, std::string_view, int, milliseconds) {
  refuse("be signalled by SLURM");
}

/// Nobody but this job's own agent signals its ranks.
std::set<int> LocalCluster::processes_here(JobId, const std::string&, milliseconds) { return {}; }

void LocalCluster::requeue(JobId, milliseconds) { refuse("be queued again"); }

bool LocalCluster::requeues_at_its_end(JobId, milliseconds) { return false; }

void LocalCluster::wait_for(JobId, JobId, milliseconds) { refuse("wait for a job"); }

OtherNodes LocalCluster::other_nodes(JobId, milliseconds) { return {}; }

void LocalCluster::exclude(JobId, const std::vector<std::string>&, milliseconds) { refuse("exclude nodes"); }

std::string LocalCluster::comment(JobId, milliseconds) { return ""; }

void LocalCluster::set_comment(JobId, const std::string&, milliseconds) { refuse("have a comment"); }

/// The variables of a job around it would make the agent ask SLURM.
Command LocalCluster::step_command(const StepRequest& request) const {
  Command command;
  command.argv = request.command;
  command.environment = env::without({"SLURM"});
  command.output = request.output;
  command.new_session = true;          // the terminal's Ctrl-C is for `holdfast run` alone
  command.when_parent_ends = SIGTERM;  // it saves, and ends all processes of the run
  return command;
}

std::shared_ptr<Cluster> cluster_around() {
  if (inside_a_job()) return std::make_shared<ClusterCli>();
  return std::make_shared<LocalCluster>();
}

}  // namespace holdfast::slurm

// Nearly every call has the same four steps: the command line comes from commands.hpp, ask() runs it within
// the limit, a failure becomes an Error by refuse() unless it means an unknown job and that is an answer, and
// replies.hpp reads what was printed. Nothing is tried a second time; the exit code of the Error says whether
// that may help.
//
// Two calls differ. A submission without an answer is OutcomeUnknown, since the job may exist. A requeue that
// fails for a reason that SLURM does not name calls ping() to learn whether there is a controller.
//
// called() says how scontrol and scancel name a job, since a task of a job array has another name than its
// number. It takes the environment, then names_, then SLURM; names_ is the only state here. Calls that may
// run while SLURM ends the processes of the job block SIGTERM (while_the_job_ends).
#include "slurm/cluster_cli.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "slurm/asking.hpp"
#include "slurm/commands.hpp"
#include "slurm/environment.hpp"
#include "slurm/hostlist.hpp"
#include "slurm/replies.hpp"
#include "src/base/env.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

using std::chrono::milliseconds;

const Asking while_the_job_ends{.environment = std::nullopt, .block_sigterm = true};

/// `doing`: "cannot submit the job", "cannot read the nodes", ...
[[noreturn]] void refuse(const std::string& doing, const Finished& done, const std::string& hint = "") {
  const Exit kind = kind_of_failure(done.err);
  std::string why = complaint(done.err);
  if (done.err.empty()) why += fmt::format(", exit code {}", done.status);
  throw Error(kind, doing, std::move(why),
              kind == Exit::transient ? "Try again when slurmctld is back." : hint);
}

/// Which option to change, by what SLURM refuses.
const char* hint_for_refused_job(std::string_view err) {
  constexpr std::array<std::pair<std::string_view, const char*>, 4> hints = {
      {{"nvalid account", "Set -A otherwise? 'holdfast avail' lists your accounts"},
       {"nvalid qos", "Set -q otherwise? 'holdfast avail' lists the QOS of your accounts"},
       {"nvalid partition", "Set -p otherwise? 'holdfast avail' lists partitions"},
       {"accounting/QOS policy", "Ask for less with -N or -t, or wait? 'holdfast avail' lists your limits"}}};
  for (const auto& [words, hint] : hints)
    if (err.find(words) != std::string_view::npos) return hint;
  return "Set -p, -A, -q, -t, -C or slurm.extra otherwise? 'holdfast avail' lists what there is";
}

}  // namespace

std::string ClusterCli::version(milliseconds limit) {
  const Finished done = ask(version_argv(), limit);
  if (done.status != 0) refuse("no SLURM cluster is configured on this machine, or it does not answer", done);
  return read_version(done.out);
}

void ClusterCli::ping(milliseconds limit) {
  // Not `scontrol ping`: a controller that limits the rate of requests (rl_enable) refuses that one, as if it
  // were down, while others wait for their turn. Job 1 need not exist.
  const Finished done = ask(job_argv(1), limit);
  if (done.status == 0 || says_unknown_job(done.err)) return;
  throw Error(Exit::transient, "SLURM's controller does not answer", complaint(done.err),
              "Try again when slurmctld is back.");
}

JobId ClusterCli::submit(const Submission& submission, milliseconds limit) {
  if (const auto array = env::get("SBATCH_ARRAY_INX"))
    throw Error(Exit::usage, "SLURM would make a job array of this job",
                "SBATCH_ARRAY_INX is set, to " + *array + ", and a run directory belongs to one job",
                "Unset it?");
  if (const std::string left_out = left_out_for_sbatch(); !left_out.empty()) log::warn("{}", left_out);
  Finished done;
  try {
    done = ask(submit_argv(submission), limit, {.environment = job_environment()});
  } catch (const Error& error) {
    if (error.exit() == Exit::transient) throw OutcomeUnknown(error.why());
    throw;
  }
  if (done.status != 0 && says_no_answer(done.err)) throw OutcomeUnknown(complaint(done.err));
  if (done.status != 0) refuse("SLURM did not take the job", done, hint_for_refused_job(done.err));
  const JobId id = read_submitted(done.out);
  const std::lock_guard lock(mutex_);
  names_.insert_or_assign(id, id);
  return id;
}

JobName ClusterCli::called(JobId id, milliseconds limit) {
  if (inside_a_job())
    if (const JobEnv here = job_env(); here.job == id && (here.task || here.in_batch_script()))
      return here.task.value_or(id);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = names_.find(id); known != names_.end()) return known->second;
  }
  const Finished done = ask(task_argv(std::to_string(id)), limit, while_the_job_ends);
  if (done.status != 0 && says_unknown_job(done.err)) return id;
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM about job {}", id), done);
  const JobName name = read_task(done.out, id);
  const std::lock_guard lock(mutex_);
  // A task has its number and its name as long as it lives.
  if (name != JobName(id)) names_.insert_or_assign(id, name);
  return name;
}

std::optional<JobId> ClusterCli::number_of(const std::string& name, milliseconds limit) {
  const Finished done = ask(task_argv(name), limit);
  if (done.status != 0 && says_unknown_job(done.err)) return std::nullopt;
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM about job {}", name), done);
  return read_number(done.out, name);
}

std::optional<Job> ClusterCli::job(JobId id, milliseconds limit) {
  const Finished done = ask(job_argv(id), limit);
  if (done.status != 0 && says_unknown_job(done.err)) return std::nullopt;
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM about job {}", id), done);
  return read_job(done.out, id);
}

std::vector<JobId> ClusterCli::jobs_of_script(const std::filesystem::path& script, milliseconds limit) {
  const Finished done = ask(scripts_argv(), limit);
  if (done.status != 0) refuse("cannot ask SLURM about this user's jobs", done);
  return read_jobs_of_script(done.out, script.string());
}

std::optional<std::filesystem::path> ClusterCli::script_of_job(JobId id, milliseconds limit) {
  const Finished done = ask(scripts_argv(), limit);
  if (done.status != 0) refuse("cannot ask SLURM about this user's jobs", done);
  return read_script_of_job(done.out, id);
}

std::optional<OwnJob> ClusterCli::queued_job(JobId id, milliseconds limit) {
  const Finished done = ask(queued_job_argv(id), limit);
  if (done.status != 0 && says_unknown_job(done.err)) return std::nullopt;
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM about job {}", id), done);
  return read_queued_job(done.out, id);
}

std::vector<OwnJob> ClusterCli::own_jobs(milliseconds limit) {
  const Finished done = ask(own_jobs_argv(), limit);
  if (done.status != 0) refuse("cannot ask SLURM about this user's jobs", done);
  return read_own_jobs(done.out);
}

std::vector<Node> ClusterCli::nodes(const std::vector<std::string>& names, milliseconds limit) {
  if (names.empty()) return {};
  const Finished done = ask(nodes_argv(names), limit);
  if (done.status != 0) refuse("cannot ask SLURM about nodes " + compress(names), done);
  const std::vector<Node> known = read_nodes(done.out);
  std::vector<Node> asked;
  for (const auto& name : names) {
    const auto it =
        std::find_if(known.begin(), known.end(), [&](const Node& node) { return node.name == name; });
    if (it == known.end())
      throw Error(Exit::usage, "SLURM knows no node called '" + name + "'", "sinfo does not list it",
                  "See 'sinfo -N'?");
    asked.push_back(*it);
  }
  return asked;
}

std::map<std::string, int> ClusterCli::gpus(JobId id, milliseconds limit) {
  const Finished done = ask(details_argv(id), limit);
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM for the GPUs of job {}", id), done);
  return read_gpus(done.out, id);
}

void ClusterCli::cancel(JobId id, milliseconds limit) {
  const Finished done = ask(cancel_argv(called(id, limit)), limit);
  if (done.status != 0 && !says_unknown_job(done.err)) refuse(fmt::format("cannot cancel job {}", id), done);
}

void ClusterCli::signal_steps(JobId id, std::string_view name, int signal, milliseconds limit) {
  const Finished steps = ask(steps_argv(called(id, limit)), limit);
  if (steps.status != 0) refuse(fmt::format("cannot ask SLURM for the steps of job {}", id), steps);
  const auto named = read_steps_named(steps.out, name);
  if (named.empty()) return;
  const Finished done = ask(signal_steps_argv(named, signal), limit);
  if (done.status != 0) refuse(fmt::format("cannot signal the steps of job {}", id), done);
}

std::set<int> ClusterCli::processes_here(JobId id, const std::string& node, milliseconds limit) {
  const Finished done = ask(processes_argv(id, node), limit);
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM for the processes of job {}", id), done);
  return read_processes(done.out);
}

bool ClusterCli::requeues_at_its_end(JobId id, milliseconds limit) {
  const Finished done = ask(preemption_argv(called(id, limit)), limit);
  if (done.status != 0) refuse(fmt::format("cannot ask SLURM whether job {} is preempted", id), done);
  return requeues_preempted_jobs(version(limit)) && read_preempted(done.out);
}

void ClusterCli::requeue(JobId id, milliseconds limit) {
  const Finished done = ask(requeue_argv(called(id, limit)), limit, while_the_job_ends);
  if (done.status == 0 || says_already_pending(done.err)) return;
  // With no controller, scontrol says "Unexpected message received": the ping tells the two apart.
  if (kind_of_failure(done.err) == Exit::runtime && !says_unknown_job(done.err)) ping(limit);
  refuse(fmt::format("cannot requeue job {}", id), done);
}

void ClusterCli::wait_for(JobId id, JobId other, milliseconds limit) {
  const JobName job = called(id, limit);
  const Finished done = ask(wait_for_argv(job, called(other, limit)), limit, while_the_job_ends);
  if (done.status != 0) refuse(fmt::format("cannot let job {} wait for job {}", id, other), done);
}

OtherNodes ClusterCli::other_nodes(JobId id, milliseconds limit) {
  const Finished job = ask(job_constraints_argv(called(id, limit)), limit);
  if (job.status != 0) refuse(fmt::format("cannot ask SLURM about job {}", id), job);
  const auto constraints = read_job_constraints(job.out);
  if (!constraints) throw Error(Exit::usage, fmt::format("SLURM does not know job {}", id));
  OtherNodes around{constraints->excluded, {}};
  for (const auto& partition : constraints->partitions) {
    const Finished nodes = ask(partition_argv(partition), limit);
    if (nodes.status != 0) refuse("cannot read the nodes of partition " + partition, nodes);
    around.partitions.push_back(read_nodes(nodes.out));
  }
  return around;
}

void ClusterCli::exclude(JobId id, const std::vector<std::string>& nodes, milliseconds limit) {
  const JobName job = called(id, limit);
  const Finished done = ask(exclude_argv(job, nodes), limit, while_the_job_ends);
  if (done.status != 0) refuse(fmt::format("cannot exclude nodes for job {}", id), done);
}

std::string ClusterCli::comment(JobId id, milliseconds limit) {
  const Finished done = ask(comment_argv(called(id, limit)), limit);
  if (done.status != 0) refuse(fmt::format("cannot read the comment of job {}", id), done);
  return read_comment(done.out);
}

void ClusterCli::set_comment(JobId id, const std::string& text, milliseconds limit) {
  const Finished done = ask(set_comment_argv(called(id, limit), text), limit);
  if (done.status != 0) refuse(fmt::format("cannot set the comment of job {}", id), done);
}

Command ClusterCli::step_command(const StepRequest& request) const {
  Command command;
  command.argv = step_argv(request);
  command.argv.front() = tool_path(command.argv.front());
  command.environment = step_environment();
  command.new_session = true;
  return command;
}

}  // namespace holdfast::slurm

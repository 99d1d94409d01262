#pragma once
// The interface to the cluster manager. ClusterCli (cluster_cli.hpp) calls SLURM's own tools, LocalCluster
// (local_cluster.hpp) is this machine alone.
//
// Every call has a deadline and none waits longer. Errors carry the exit code to end with: slurmctld does not
// answer, or asks to try later -> transient; SLURM refuses the request -> usage or impossible, with SLURM's
// own message; a tool is not installed -> runtime, with its name. Nothing is retried here.
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "slurm/job_env.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/subprocess.hpp"

namespace holdfast::slurm {

constexpr std::chrono::milliseconds default_limit{10000};  ///< of one call

enum class JobState {
  pending,     ///< waits for nodes; a requeued job does too
  running,     ///< also while configuring, suspended, stopped, resizing or signaling
  completing,  ///< processes are being ended; the outcome is fixed
  finished,    ///< completed, failed, cancelled, timeout, node_fail, ...: see state_text
};
const char* name_of(JobState state);

struct Job {
  JobId id = 0;
  JobState state = JobState::finished;
  std::string state_text;          ///< as SLURM writes it, for example "NODE_FAIL"
  std::string reason;              ///< why it waits or why it ended, as SLURM writes it; empty: none
  std::string name;                ///< verbatim; any characters but NUL
  std::vector<std::string> nodes;  ///< its present nodes, in SLURM's order; empty while pending
  std::string
      batch_host;  ///< where the batch script was started; its node is lost when it is not among `nodes`
  std::optional<double>
      end_time;  ///< Unix seconds when SLURM will end it (or did); nothing: no limit, or pending
  bool alive() const { return state != JobState::finished; }  ///< it may still use its run directory
};

/// A live job of this user.
struct OwnJob {
  JobId id = 0;
  JobState state = JobState::pending;
  std::string state_text, reason;  ///< as SLURM writes them; no reason: empty
  std::optional<double> start;     ///< Unix seconds: when it began, or is expected to
  std::filesystem::path script;    ///< of sbatch; other jobs have "(null)" or a command here
  bool operator==(const OwnJob&) const = default;
};

struct Node {
  std::string name;
  std::string address;     ///< NodeAddr: a host name or address that other nodes reach it by
  std::string state_text;  ///< as SLURM writes it, for example "IDLE+DRAIN" or "DOWN*"
  std::string reason;      ///< why it is down or drained, else empty
  bool usable = false;     ///< a job can get it, now or later: up and answering as far as SLURM knows (its
                           ///< detector is minutes late), and not drained
};

/// The other nodes on which a job could run.
struct OtherNodes {
  std::vector<std::string> excluded;          ///< that it already excludes
  std::vector<std::vector<Node>> partitions;  ///< the nodes of each that it may run in; it runs in one
};

/// One batch job. Nothing here is evaluated by a shell.
struct Submission {
  std::filesystem::path script;
  std::vector<std::string> arguments;  ///< for sbatch, before the script; see batch_script.hpp
};

/// A submission was sent and no answer came (transient). The job may exist: jobs_of_script() will show it.
class OutcomeUnknown : public Error {
 public:
  explicit OutcomeUnknown(std::string why)
      : Error(Exit::transient, "it is unknown whether SLURM took the job", std::move(why),
              "Try again: Holdfast looks for the job first.") {}
};

inline constexpr std::string_view agent_step = "agent";  ///< the name of the steps with agents
/// In StepRequest::output: the name of the node.
inline constexpr std::string_view node_in_path = "{node}";

/// One process on each of some nodes of a job, in one step, with all CPUs and all memory of the job there.
struct StepRequest {
  JobId job = 0;
  std::vector<std::string> nodes;
  std::vector<std::string> command;
  std::filesystem::path output;  ///< stdout and stderr of the step, opened (appended to) by the node itself
  int gpus = 0;                  ///< that the job has on each node; 0: those that it asked for by number
  std::string name{agent_step};  ///< of the step, shown by squeue -s
  std::vector<std::string> options;  ///< further ones of srun
};

class Cluster {
 public:
  virtual ~Cluster() = default;

  /// "22.05.8"
  virtual std::string version(std::chrono::milliseconds limit = default_limit) = 0;
  /// Returns when slurmctld has answered; throws Error (transient) when it does not.
  virtual void ping(std::chrono::milliseconds limit = default_limit) = 0;

  /// Submits a batch script. Throws OutcomeUnknown, or Error: transient (no slurmctld), usage (wrong option,
  /// partition, account), impossible (more than the cluster has).
  virtual JobId submit(const Submission& submission, std::chrono::milliseconds limit = default_limit) = 0;
  /// Nothing when SLURM does not know the job (it forgets ended jobs after MinJobAge, 300 s).
  virtual std::optional<Job> job(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// The live jobs of this user that were submitted with this script (absolute path), in SLURM's order.
  virtual std::vector<JobId> jobs_of_script(const std::filesystem::path& script,
                                            std::chrono::milliseconds limit = default_limit) = 0;
  /// The reverse: the script of a live job of this user; nothing when SLURM knows no such job.
  virtual std::optional<std::filesystem::path> script_of_job(
      JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// One entry for each name, in the given order; Error (usage) when SLURM knows no node of that name.
  virtual std::vector<Node> nodes(const std::vector<std::string>& names,
                                  std::chrono::milliseconds limit = default_limit) = 0;

  /// GPUs that a running job has on each of its nodes, requested or not; nodes without GPUs are left out.
  virtual std::map<std::string, int> gpus(JobId id, std::chrono::milliseconds limit = default_limit) = 0;

  /// How SLURM's tools call this job; see JobName. A number that submit() of this object has returned stands
  /// for all that was submitted, also for an array.
  virtual JobName called(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// The number of the live task "15_2" of an array.
  virtual std::optional<JobId> number_of(const std::string& name,
                                         std::chrono::milliseconds limit = default_limit) = 0;

  virtual void cancel(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// Sends a signal to the processes of all steps of a job that have this name. They need no srun any more.
  virtual void signal_steps(JobId id, std::string_view name, int signal,
                            std::chrono::milliseconds limit = default_limit) = 0;
  /// The processes of the job on this node that SLURM knows of. Those whose names it cannot read, or that
  /// have left what it looks at, are not among them (ProctrackType), and get none of its signals.
  virtual std::set<int> processes_here(JobId id, const std::string& node,
                                       std::chrono::milliseconds limit = default_limit) = 0;
  /// Ends the job's steps and script (this process too, if it is one of them) and queues it again.
  virtual void requeue(JobId id, std::chrono::milliseconds limit = default_limit) = 0;

  /// True when SLURM itself requeues the job at its end, for it is being preempted (24.05 and newer). A
  /// requeue by hand would leave the job marked: SLURM would requeue it at its next end, too, even with exit
  /// code 0.
  virtual bool requeues_at_its_end(JobId id, std::chrono::milliseconds limit = default_limit) = 0;

  /// Lets a pending job begin only when the other one has ended. A requeued job is pending.
  virtual void wait_for(JobId id, JobId other, std::chrono::milliseconds limit = default_limit) = 0;

  /// Throws Error (usage) when SLURM does not know the job.
  virtual OtherNodes other_nodes(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// Replaces the job's list of excluded nodes. Only a pending job can be changed; a requeued job is pending.
  virtual void exclude(JobId id, const std::vector<std::string>& nodes,
                       std::chrono::milliseconds limit = default_limit) = 0;

  /// The job's comment, which squeue shows (%k); empty: none.
  virtual std::string comment(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  virtual void set_comment(JobId id, const std::string& text,
                           std::chrono::milliseconds limit = default_limit) = 0;

  /// The command that starts a step, for spawn(). The step is independent of every other step, continues when
  /// other nodes fail, never waits for resources of a failed one, and needs no SLURM_* of the caller. srun's
  /// exit code is unreliable and srun may hang for minutes when its node is lost: a start has succeeded when
  /// the agent connects; never wait for an old srun.
  virtual Command step_command(const StepRequest& request) const = 0;
  /// Does it end what processes of a job are left when the job ends? Else they must end with their parents.
  virtual bool ends_processes() const { return true; }
};

}  // namespace holdfast::slurm

#pragma once
// All that Holdfast needs of a cluster manager. ClusterCli (cluster_cli.hpp) asks SLURM's own tools,
// FakeCluster (fake_cluster.hpp) lives in memory for tests.
//
// Every call has a deadline and none waits longer. Errors carry the exit code to end with: slurmctld does not
// answer, or answers "later" -> transient; SLURM refuses what was asked for -> usage or impossible, in
// SLURM's own words; a tool is not installed -> runtime, naming it. Nothing is retried here.
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
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
  std::string state_text;          ///< SLURM's word, for example "NODE_FAIL"
  std::string reason;              ///< why it waits or why it ended, SLURM's word; empty: none
  std::string name;                ///< verbatim; may hold anything but NUL
  std::vector<std::string> nodes;  ///< that it has now, in SLURM's order; empty while pending
  std::string
      batch_host;  ///< where the batch script was started; its node is lost when it is not among `nodes`
  std::optional<double>
      end_time;  ///< Unix seconds when SLURM will end it (or did); nothing: no limit, or pending
  bool alive() const { return state != JobState::finished; }  ///< may still own its run directory
};

struct Node {
  std::string name;
  std::string address;     ///< NodeAddr: a host name or address that other nodes reach it by
  std::string state_text;  ///< SLURM's words, for example "IDLE+DRAIN" or "DOWN*"
  std::string reason;      ///< why it is down or drained, else empty
  bool usable = false;     ///< a job can get it, now or later: up and answering as far as SLURM knows (its
                           ///< detector is minutes late), and not drained
};

/// Where a job could run besides.
struct Surroundings {
  std::vector<std::string> excluded;          ///< that it does not want already
  std::vector<std::vector<Node>> partitions;  ///< the nodes of each that it may run in; it runs in one
};

/// One batch job. Nothing here is evaluated by a shell.
struct Submission {
  std::filesystem::path script;
  std::vector<std::string> arguments;  ///< for sbatch, before the script; see batch_script.hpp
};

/// A submission was sent and no answer came (transient). The job may exist: job_of_script() tells, later.
class OutcomeUnknown : public Error {
 public:
  explicit OutcomeUnknown(std::string why)
      : Error(Exit::transient, "it is unknown whether SLURM took the job", std::move(why),
              "Try again: Holdfast looks for the job first.") {}
};

/// One process on one node of a job, in a step of its own, with all CPUs and all memory that the job has
/// there.
struct StepRequest {
  JobId job = 0;
  std::string node;
  std::vector<std::string> command;
  std::filesystem::path output;  ///< stdout and stderr of the step, opened (appended to) by the node itself
  int gpus = 0;                  ///< that the job has on this node; 0: those that it asked for by number
  std::string name = "agent";    ///< of the step, shown by squeue -s
};

class Cluster {
 public:
  virtual ~Cluster() = default;

  /// "22.05.8"
  virtual std::string version(std::chrono::milliseconds limit = default_limit) = 0;
  /// Returns when slurmctld has answered; throws Error (transient) when it does not.
  virtual void ping(std::chrono::milliseconds limit = default_limit) = 0;

  /// Hands a batch script in. Throws OutcomeUnknown, or Error: transient (no slurmctld), usage (wrong option,
  /// partition, account), impossible (more than the cluster can give).
  virtual JobId submit(const Submission& submission, std::chrono::milliseconds limit = default_limit) = 0;
  /// Nothing when SLURM does not know the job (any more: it forgets ended jobs after MinJobAge, 300 s).
  virtual std::optional<Job> job(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// The live job of this user that was submitted with this script (absolute path).
  virtual std::optional<JobId> job_of_script(const std::filesystem::path& script,
                                             std::chrono::milliseconds limit = default_limit) = 0;
  /// The other way: the script of a live job of this user; nothing when SLURM knows no such job.
  virtual std::optional<std::filesystem::path> script_of_job(
      JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// One entry for each name, in the order asked; Error (usage) when SLURM knows none of that name.
  virtual std::vector<Node> nodes(const std::vector<std::string>& names,
                                  std::chrono::milliseconds limit = default_limit) = 0;

  /// GPUs that a running job has on each of its nodes, asked for or not; nodes without are left out.
  virtual std::map<std::string, int> gpus(JobId id, std::chrono::milliseconds limit = default_limit) = 0;

  virtual void cancel(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// Ends the job's steps and script (this process too, if it is one of them) and queues it again.
  virtual void requeue(JobId id, std::chrono::milliseconds limit = default_limit) = 0;

  /// Throws Error (usage) when SLURM does not know the job.
  virtual Surroundings surroundings(JobId id, std::chrono::milliseconds limit = default_limit) = 0;
  /// The job's list of nodes that it does not want, replacing the one it had. Only a pending job can be
  /// changed, one that was just requeued too.
  virtual void exclude(JobId id, const std::vector<std::string>& nodes,
                       std::chrono::milliseconds limit = default_limit) = 0;

  /// How to start a step: hand it to spawn(). It is independent of every other step, holds on when other
  /// nodes die, never waits for resources of a dead one, and needs no SLURM_* of the caller. srun's exit code
  /// says little and it may hang for minutes when its node is lost: judge a start by the agent calling home,
  /// and never wait for an old srun.
  virtual Command step_command(const StepRequest& request) const = 0;
};

}  // namespace holdfast::slurm

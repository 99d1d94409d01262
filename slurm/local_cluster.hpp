#pragma once
// This machine as a cluster of one node, for `holdfast run --local`: no SLURM, no root. It has one job, whose
// processes live as long as the `holdfast run` that started them. Nothing waits in a queue here, so what only
// a queue can do ends with an Error (impossible).
#include <memory>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

class LocalCluster : public Cluster {
 public:
  /// The host's name up to the first dot, where it is fit for a file name; else "localhost".
  static std::string node_name();
  /// What a process of this job would find in its environment.
  static JobEnv job_env(JobId job);

  std::string version(std::chrono::milliseconds limit) override;
  void ping(std::chrono::milliseconds) override {}
  JobId submit(const Submission& submission, std::chrono::milliseconds limit) override;
  std::optional<Job> job(JobId id, std::chrono::milliseconds limit) override;
  std::vector<JobId> jobs_of_script(const std::filesystem::path& script,
                                    std::chrono::milliseconds limit) override;
  std::optional<std::filesystem::path> script_of_job(JobId id, std::chrono::milliseconds limit) override;
  /// The address is that of the loopback interface.
  std::vector<Node> nodes(const std::vector<std::string>& names, std::chrono::milliseconds limit) override;
  std::map<std::string, int> gpus(JobId id, std::chrono::milliseconds limit) override;
  JobName called(JobId id, std::chrono::milliseconds limit) override;
  std::optional<JobId> number_of(const std::string& name, std::chrono::milliseconds limit) override;
  void cancel(JobId id, std::chrono::milliseconds limit) override;
  void signal_steps(JobId id, std::string_view name, int signal, std::chrono::milliseconds limit) override;
  std::set<int> processes_here(JobId id, const std::string& node, std::chrono::milliseconds limit) override;
  void requeue(JobId id, std::chrono::milliseconds limit) override;
  bool requeues_at_its_end(JobId id, std::chrono::milliseconds limit) override;
  void wait_for(JobId id, JobId other, std::chrono::milliseconds limit) override;
  OtherNodes other_nodes(JobId id, std::chrono::milliseconds limit) override;
  void exclude(JobId id, const std::vector<std::string>& nodes, std::chrono::milliseconds limit) override;
  std::string comment(JobId id, std::chrono::milliseconds limit) override;
  void set_comment(JobId id, const std::string& text, std::chrono::milliseconds limit) override;
  bool ends_processes() const override { return false; }
  Command step_command(const StepRequest& request) const override;
};

/// The cluster whose job this process belongs to: SLURM's inside a job, else this machine.
std::shared_ptr<Cluster> cluster_around();

}  // namespace holdfast::slurm

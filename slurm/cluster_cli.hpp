#pragma once
// SLURM through its own tools (sbatch, squeue, sinfo, scontrol, scancel, srun), which must be in PATH.
// libslurm is not used: its ABI changes with every release, the tools' explicit formats do not.
#include <map>
#include <mutex>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

class ClusterCli : public Cluster {
 public:
  std::string version(std::chrono::milliseconds limit) override;
  void ping(std::chrono::milliseconds limit) override;
  JobId submit(const Submission& submission, std::chrono::milliseconds limit) override;
  std::optional<Job> job(JobId id, std::chrono::milliseconds limit) override;
  std::vector<JobId> jobs_of_script(const std::filesystem::path& script,
                                    std::chrono::milliseconds limit) override;
  std::optional<std::filesystem::path> script_of_job(JobId id, std::chrono::milliseconds limit) override;
  std::vector<Node> nodes(const std::vector<std::string>& names, std::chrono::milliseconds limit) override;
  std::map<std::string, int> gpus(JobId id, std::chrono::milliseconds limit) override;
  JobName called(JobId id, std::chrono::milliseconds limit) override;
  std::optional<JobId> number_of(const std::string& name, std::chrono::milliseconds limit) override;
  void cancel(JobId id, std::chrono::milliseconds limit) override;
  void signal_steps(JobId id, std::string_view name, int signal, std::chrono::milliseconds limit) override;
  std::set<int> processes_here(JobId id, const std::string& node,
                               std::chrono::milliseconds limit = default_limit) override;
  void requeue(JobId id, std::chrono::milliseconds limit) override;
  bool requeues_at_its_end(JobId id, std::chrono::milliseconds limit) override;
  void wait_for(JobId id, JobId other, std::chrono::milliseconds limit) override;
  OtherNodes other_nodes(JobId id, std::chrono::milliseconds limit) override;
  void exclude(JobId id, const std::vector<std::string>& nodes, std::chrono::milliseconds limit) override;
  std::string comment(JobId id, std::chrono::milliseconds limit) override;
  void set_comment(JobId id, const std::string& text, std::chrono::milliseconds limit) override;
  /// A job of anybody, for users to see; nothing when SLURM does not know it (any more). Throws Error, as
  /// job() does.
  std::optional<OwnJob> queued_job(JobId id, std::chrono::milliseconds limit = default_limit);
  /// Throws Error, as job() does.
  std::vector<OwnJob> own_jobs(std::chrono::milliseconds limit = default_limit);
  Command step_command(const StepRequest& request) const override;

 private:
  std::mutex mutex_;  // calls come from several threads
  std::map<JobId, JobName> names_;
};

}  // namespace holdfast::slurm

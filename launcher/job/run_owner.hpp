#pragma once
// A run directory belongs to one job at a time, which owner.json names. `submit` claims it before the job
// exists, and the job's own `holdfast run` confirms the claim before it writes anything. A local run also
// holds a lock (bare.lock), which tells whether it lives: SLURM knows nothing of it.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

struct Owner {
  /// Absent: `submit` is running, or died, or does not know whether SLURM has accepted the job.
  std::optional<slurm::JobId> job;
  std::string host;    ///< of the claimant
  int pid = 0;         ///< of the claimant
  double since = 0;    ///< Unix seconds
  bool local = false;  ///< a run without SLURM, by process `pid` of `host`
  bool operator==(const Owner&) const = default;
};

/// Nothing when the directory was never claimed. Throws Error (runtime) when the file is damaged.
std::optional<Owner> read_owner(const RunDir& run);

/// For submit: takes the directory, or throws Error: usage (a job that may still run has it, or a run without
/// a job, or another submit is running), transient (that job or its run is just ending, or SLURM does not
/// answer).
class RunDirClaim {
 public:
  RunDirClaim(const RunDir& run, slurm::Cluster& cluster);
  RunDirClaim(const RunDirClaim&) = delete;
  /// Gives the directory back, unless give_to() or keep() was called.
  ~RunDirClaim();

  /// Called right before the job is submitted; throws Error (usage) when the directory is not ours any more.
  void check() const;
  /// The job exists: it owns the directory now.
  void give_to(slurm::JobId job);
  /// It is unknown whether the job exists: the claim is left to the job or the next submit.
  void keep() { held_ = false; }

 private:
  RunDir run_;
  Owner mine_;
  bool held_ = true;
};

/// For a run without SLURM: takes the directory until the process ends, or throws Error as RunDirClaim does.
/// SLURM is asked only where the directory belongs to one of its jobs. Returns the number of the run's job:
/// when it began, in Unix seconds, which is no job id of SLURM's; a run without an outcome keeps its number.
slurm::JobId take_for_local_run(const RunDir& run, slurm::Cluster& slurm);

/// The jobs that use the run directory now, or will: the owner, and jobs of its script that wait. Throws
/// Error.
std::vector<slurm::JobId> live_jobs(const RunDir& run, slurm::Cluster& cluster);
/// Another job than this one that owns the directory, and lives. Throws Error.
std::optional<slurm::JobId> live_owner(const RunDir& run, slurm::JobId job, slurm::Cluster& cluster);

/// For the job itself: returns when `job` owns the directory, taking it over from a claim without a job or
/// from a job that has ended. Throws Error: no_requeue (another live job has it, or a run without a job),
/// transient (SLURM does not answer; only asked when owner.json names another job).
void confirm_owner(const RunDir& run, slurm::JobId job, slurm::Cluster& cluster);

}  // namespace holdfast::launcher

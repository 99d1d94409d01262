#pragma once
// A run directory belongs to one job at a time: owner.json says to which. `submit` claims it before the job
// exists, the job's own `holdfast run` confirms the claim before it writes anything.
#include <filesystem>
#include <optional>
#include <string>

#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

struct Owner {
  std::optional<slurm::JobId>
      job;           ///< absent: `submit` is at work, or died, or never heard whether SLURM took the job
  std::string host;  ///< of the claimant
  int pid = 0;       ///< of the claimant
  double since = 0;  ///< Unix seconds
  bool operator==(const Owner&) const = default;
};

/// Nothing when nobody ever claimed the directory. Throws Error (runtime) when the file is damaged.
std::optional<Owner> read_owner(const RunDir& run);

/// For submit: takes the directory, or throws Error: usage (a job that may still run has it, or a run without
/// a job, or another submit is at work), transient (that job is just ending, or SLURM does not answer whether
/// it lives).
class RunDirClaim {
 public:
  RunDirClaim(const RunDir& run, slurm::Cluster& cluster);
  RunDirClaim(const RunDirClaim&) = delete;
  /// Gives the directory back, unless give_to() or keep() was called.
  ~RunDirClaim();

  /// Is it still ours? Asked right before the job is submitted; throws Error (usage) when it is not.
  void check() const;
  /// The job exists: the directory is its own now.
  void give_to(slurm::JobId job);
  /// It is unknown whether the job exists: leave the claim for the job, or the next submit, to settle.
  void keep() { held_ = false; }

 private:
  RunDir run_;
  Owner mine_;
  bool held_ = true;
};

/// For the job itself: returns when `job` owns the directory, taking it over from a claim without a job or
/// from a job that has ended. Throws Error: no_requeue (another live job has it, or a run without a job),
/// transient (SLURM does not answer; only asked when owner.json names another job).
void confirm_owner(const RunDir& run, slurm::JobId job, slurm::Cluster& cluster);

}  // namespace holdfast::launcher

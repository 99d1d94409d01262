#pragma once
// What the leader does for the job beside the batch script, and instead of it once the batch host is lost: it
// watches the time limit (the script's signal may never come, and reaches only its host), and requeues the
// job or ends it. SLURM itself would keep the nodes for a job that has nothing left to run until its time
// limit.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "slurm/requeue.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class BatchScriptFallback {
 public:
  /// `time_is_short` is called in the loop's thread, at most once: when `notice_s` are left and the script is
  /// lost, or a little later when its signal should have come and has not.
  BatchScriptFallback(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster, slurm::JobId job,
                      int notice_s, std::function<void()> time_is_short);

  /// From now on SLURM is asked for the end of the job: seldom at first, more often when it is near.
  void watch_the_clock();
  /// The script's host is lost; the job's comment says so, too. Idempotent.
  void is_lost();
  /// The run is over with `exit_code` and no script is left to act on it: on 75 the job goes back into the
  /// queue, else it ends. Nothing when SLURM is ending it already.
  void conclude(int exit_code, slurm::NextNodes next);

 private:
  void ask();
  struct Answer {
    std::optional<double> end;  ///< of the job; nothing: it has none, or it is unknown
    std::string trouble;
  };
  void answered(const Answer& answer);
  control::Loop& loop_;
  std::shared_ptr<slurm::Cluster> cluster_;
  slurm::JobId job_;
  double notice_s_;
  std::function<void()> time_is_short_;
  control::Loop::Handle timer_;
  std::string trouble_;  ///< that was logged last
  bool lost_ = false, over_ = false, asking_ = false;
  // SLURM may take seconds to answer, and heartbeats must not wait for it.
  control::Worker queries_, last_request_;
};

/// Seconds until SLURM is asked again; 0: time is short now. `left`: until the job's end; nothing: no answer,
/// or no limit.
double next_query_s(std::optional<double> left, double notice_s, bool script_is_lost);

}  // namespace holdfast::launcher

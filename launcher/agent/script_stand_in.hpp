#pragma once
// What the batch script would do for the job, done by the leader once the script's host is lost: it looks at
// the clock, puts the job back into the queue or ends it. SLURM itself would keep the nodes for a job that
// has nothing left to run until its time limit.
#include <functional>
#include <memory>
#include <thread>

#include "slurm/cluster.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {

class ScriptStandIn {
 public:
  /// `time_is_short` is called in the loop's thread, at most once, when `notice_s` or little more is left.
  ScriptStandIn(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster, slurm::JobId job, int notice_s,
                std::function<void()> time_is_short);
  ~ScriptStandIn();  ///< waits for a call to SLURM that is under way: seconds at most

  /// From now on SLURM is asked for the job's end, twice a minute.
  void watch_the_clock();
  /// The run is over with `exit_code`: on 75 the job goes back into the queue, else it ends. Nothing when
  /// SLURM is ending it already.
  void conclude(int exit_code);

 private:
  void ask();
  control::Loop& loop_;
  std::shared_ptr<slurm::Cluster> cluster_;
  slurm::JobId job_;
  double notice_s_;  ///< with the period: the next answer may come that much later
  std::function<void()> time_is_short_;
  control::Loop::Handle timer_;
  std::thread worker_;  ///< SLURM may take seconds to answer, and heartbeats must not wait for it
  bool busy_ = false, said_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace holdfast::launcher

#pragma once
// Where the time of a run went: every moment between its first event and its newest has exactly one use, over
// all of its jobs. What shows later to have been something else is moved there. Pure.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/record/events.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::launcher {

enum class TimeUse {
  queue,       ///< between the last event of a job and the first one of the next
  gather,      ///< until the agents of a job are connected
  clear,       ///< until older ranks have ended, and what is waited before another start
  launch,      ///< until all ranks are up, each in its place; of a fresh start, until a step is done
  restore,     ///< until the state is loaded, and a new step is done
  productive,  ///< steps whose results last
  redone,      ///< steps that were done again later
  shrunk,      ///< what steps took longer because the run had lost nodes
  saves,       ///< that steps waited for saves and snapshots, as the votes on checkpoints tell
  paused,      ///< held on order
  hung,        ///< from the last progress of a hung rank until it was suspected
  detect,      ///< from the last sign of life of what failed otherwise, until it was noticed
  decide,      ///< from there to the decision
  end,         ///< from the end of the last attempt to that of the run
  count_
};
const char* name_of(TimeUse use);

class TimeAccount {
 public:
  void take(const LogEntry& entry);
  /// What goes on has gone on until then, at least: Unix seconds. For who has seen more than the event log.
  void pass(double unix);
  /// The same of ranks that are up and report nothing: they have done steps, as when their attempt ends.
  void pass_running(double unix);

  /// Seconds. They add up to `total`.
  double of(TimeUse use) const { return seconds_[as_size(use)]; }
  double total() const { return last_ - began_; }
  /// Goodput: the share of the total, and of the node time that SLURM had allocated, that was productive. 0:
  /// not known.
  double goodput() const;
  double goodput_of_nodes() const;

 private:
  /// Steps that an attempt did, and what they took.
  struct Stretch {
    std::int64_t from = 0, to = 0;
    double productive = 0, shrunk = 0;
  };
  struct Taking;
  double& part(TimeUse use) { return seconds_[as_size(use)]; }
  void advance(double now);
  void spend(double seconds);
  void go_on_as(TimeUse use);
  void move_to(TimeUse use, double seconds);
  void stalled(double seconds);
  void take_back(std::int64_t step);
  void lose_unsaved();

  std::array<double, as_size(TimeUse::count_)> seconds_{};
  double began_ = 0, last_ = 0;
  double behind_ = 0;  ///< by how much the clock of the leader of the moment is
  std::string job_;
  TimeUse now_ = TimeUse::queue;
  double since_ = 0;     ///< seconds of `now_` without a break
  bool paused_ = false;  ///< by an order; ranks that step obey
  double slowdown_ = 1;  ///< of the world, since the run has shrunk
  std::int64_t restored_ = -1;
  Stretch stretch_;       ///< of the attempt that steps, ...
  Stretch durable_part_;  ///< ... and as it was at its newest durable checkpoint
  std::vector<Stretch> stretches_;
  int nodes_ = 0, slots_ = 0;  ///< of the allocation; of the run as it was planned
  double node_seconds_ = 0;    ///< allocated
};

}  // namespace holdfast::launcher

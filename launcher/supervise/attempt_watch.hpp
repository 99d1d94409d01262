#pragma once
// The ranks of the attempt as their agents report them: where they are, which have started and ended, and how
// far they have come. Pure.
//
// Ranks that do not report their progress do not follow orders (config::Reports). Neither their progress nor
// their saved state is known, and only signals reach them:
//
// clang-format off
//   question                           ranks that report, or always will        ranks that have not reported
//   did the attempt bring it forward?  steps and checkpoints say                yes when all ranks ran for supervise.assumed_progress_s
//   told to save, to hold              they follow                              refused: the ranks would not know
//   told to end                        they save, and end with 75               SIGTERM; obeyed when all have ended, or drain_s
//   told to leave a node               the same                                 the same, if they save on SIGTERM (rank.kind)
//   what was lost?                     steps since the durable one              not known
//   do they hang?                      a phase outlasts its bound (pace)        no sign of life, seen from outside (outside_watch)
// clang-format on
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/supervise/hang.hpp"
#include "launcher/supervise/life_signs.hpp"
#include "src/config/rank_promises.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct SlotProgress {
  std::int64_t step = -1;             ///< of the rank that is least far; -1: one has not said it
  std::map<std::string, int> phases;  ///< ranks in each; beside the names of phases: "ended", "done"
};

/// All times are in seconds of one clock. Ranks in arguments are of the attempt's world (has()).
class AttemptWatch {
 public:
  /// `heartbeat_s`: between two heartbeats. `placement`: slot -> node, to begin with.
  AttemptWatch(int ranks_per_node, const config::RankPromises& promises, double heartbeat_s,
               std::vector<int> placement);
  /// Another attempt: nothing is known of its ranks.
  void begin(std::vector<int> placement);

  const std::vector<int>& placement() const { return placement_; }
  int world() const { return static_cast<int>(ranks_.size()); }
  bool has(int rank) const { return rank >= 0 && rank < world(); }
  int node_of(int rank) const { return placement_[rank / ranks_per_node_]; }
  bool has_on(int rank, int node) const { return has(rank) && node_of(rank) == node; }
  int slot_of(int node) const;  ///< -1: it has none

  // reports
  std::vector<RankMove> heartbeat(int node, const control::Heartbeat& what, double now);
  void started(int rank) { ranks_[rank].started = true; }
  void ended(int rank, bool well);
  bool has_ended(int rank) const { return ranks_[rank].ended; }
  bool finished(int rank);  ///< false: that is known
  void sent_sigterm(int rank) { ranks_[rank].sent_sigterm = true; }
  void flight(const control::RankFlight& what, double now);
  /// A checkpoint of this step is durable: every rank has done it, and a heartbeat may say so later.
  void saved(std::int64_t step);

  // time
  void watch(double now);  ///< all ranks are up: the time of each begins
  void adopt(double now);  ///< the same under a new leader, which has heard some of them before
  void hold(double now);   ///< ranks hold on order: their time begins when they go on
  void extend_deadlines(double seconds, double now);

  // findings
  bool all_started() const { return !missing(); }
  /// Ranks that have not started, or nothing.
  struct Missing {
    int count = 0, first = -1;
    bool one_node = true;  ///< all of them are on the first one's
  };
  std::optional<Missing> missing() const;
  bool whole() const;                 ///< every rank runs, or has ended with 0
  bool all_exited_well() const;       ///< every rank has ended with 0
  int unended() const;                ///< ranks whose process has not ended
  int sigterms() const;               ///< ranks to which SIGTERM was sent
  bool others_ended(int rank) const;  ///< the process of another rank than this one has ended
  bool any_holds() const;             ///< a rank says that it holds
  bool any_saves() const;             ///< a live rank says that it writes a checkpoint
  bool any_finished() const;          ///< a rank has said that it has done all its steps
  /// A rank that its agent, though `heard_now`, has not reported for too long.
  std::optional<RankEnd> vanished(const std::vector<bool>& heard_now, double now) const;
  std::int64_t highest_step() const;
  std::int64_t step_of(int rank) const { return ranks_[rank].step; }
  /// How far the ranks of a slot have come, as they have said last.
  SlotProgress progress_of(int slot) const;
  bool reports() const;  ///< is the progress of this attempt known?
  bool follows() const;  ///< do its ranks follow the orders that their agents pass on?
  /// When all ranks lived at last: a step needs all of them.
  double all_took_part_at() const { return all_took_part_; }
  /// Ranks that train. A rank of which nothing was ever heard is among them once the state is `restored`.
  /// What is returned points to reports that are kept here.
  std::vector<StillRank> still_ranks(bool restored, double now) const;

 private:
  struct Rank {
    bool started = false, finished = false, exited_well = false;
    bool ended = false;     ///< its process has ended, in any way
    bool reported = false;  ///< it has reported progress
    bool sent_sigterm = false;
    std::int64_t step = -1;
    control::Phase phase = control::Phase::starting;
    std::int64_t moves = 0;                     ///< phases begun, as it counts them
    double moved_at = 0;                        ///< when it last began a phase, ...
    double stepped_at = 0;                      ///< ... and a step
    double seen_at = 0;                         ///< when its agent last reported it as alive
    std::optional<control::RankFlight> flight;  ///< the last report, ...
    double flight_at = 0;                       ///< and when it came
    /// It runs and has not done its last step.
    bool trains() const { return started && !finished && !exited_well; }
    /// It has a step or a phase, as its agent knows it now.
    bool placed() const { return step >= 0 || phase != control::Phase::starting; }
  };
  void ranks_came_to(std::int64_t step, double now);

  int ranks_per_node_;
  config::RankPromises promises_;
  double heartbeat_s_;
  std::vector<int> placement_;
  std::vector<Rank> ranks_;
  std::int64_t newest_step_ = -1;  ///< that a rank has reported, ...
  double newest_step_at_ = 0;      ///< ... and when it came
  double all_took_part_ = LifeSigns::never;
};

}  // namespace holdfast::launcher

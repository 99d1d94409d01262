#pragma once
// Ranks that are alive and make no progress: the pace of the run, and a hang that has been found. Pure.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/hang.hpp"
#include "launcher/supervise/outside_watch.hpp"
#include "launcher/supervise/pace.hpp"
#include "launcher/supervise/policy.hpp"

namespace holdfast::launcher {

/// The rank that holds the others up.
struct Hang {
  int rank = -1;
  double overdue_s = 0;                            ///< the bound that has passed
  double still_s = 0;                              ///< since the rank moved
  std::string why = {};                            ///< the evidence against it; empty: only its phase
  double since = 0;                                ///< when a hang was found first
  bool from_outside = false;                       ///< of ranks that do not report
  std::string stacks = {};                         ///< of the rank, where its agent has answered
  bool named = true;                               ///< else nobody is known; it is one of those that wait
  double unjudged_s = 0;                           ///< Failure::unjudged_s
  control::Phase phase = control::Phase::forward;  ///< that the rank is in
};
/// The failure of the attempt; `node` of the rank, and its name.
Failure failure_of(const Hang& hang, int node, const std::string& name);

/// All times are in seconds of one clock.
class HangWatch {
 public:
  HangWatch(const config::Supervise& limits, int world, const std::map<std::string, events::KnownPace>& known,
            const RankWork& work = {}, double unjudged_s = 0);

  void moved(const RankMove& move);  ///< while all ranks run
  void new_attempt();
  /// The attempt is past its first rounds, under an earlier leader.
  void settled() { pace_.settled(); }

  struct Finding {
    int dump = -1;             ///< the rank whose stacks are to be asked for
    std::optional<Hang> hang;  ///< its stacks have come, or did not come in time
  };
  /// `all_heard`: what the ranks of a silent node do is not known. It will be heard again, or be lost within
  /// node_silence_ms.
  Finding check(const std::vector<StillRank>& ranks, bool all_heard, double now);

  // The same of ranks that do not report.
  void seen(int node, const control::RankSeen& what, double now) { outside_.seen(node, what, now); }
  void ended(int rank) { outside_.ended(rank); }
  Finding check_outside(int world, bool all_heard, double now);

  void stacks(int rank, const std::string& text);
  /// When the hang was found; nothing: there is none.
  std::optional<double> since() const { return hang_ ? std::optional(hang_->since) : std::nullopt; }
  void forget() { hang_.reset(); }
  void extend_deadlines(double seconds, double now);

  /// A leader that knows only `recorded` would set other bounds. Not again soon after known_pace().
  bool pace_is_news(const std::map<std::string, events::KnownPace>& recorded, double now) const;
  std::map<std::string, events::KnownPace> known_pace(double now);

 private:
  Finding found(const Hang& what, double now);

  config::Supervise limits_;
  Pace pace_;
  OutsideWatch outside_;
  std::optional<Hang> hang_;
  double pace_at_ = 0;  ///< when the pace was last recorded
};

}  // namespace holdfast::launcher

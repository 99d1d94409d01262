#pragma once
// How long phases of a step take, learned during the run. From this follows when a rank is hung. Pure.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/plan/rank_work.hpp"
#include "launcher/supervise/hang.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::launcher {

class Pace {
 public:
  static constexpr int first_rounds = 3;  ///< of an attempt, which take longer than others

  static constexpr double young_allowance = 2;  ///< for the first rounds of an attempt

  /// `world`: ranks whose phases are reported. How many reports make a phase known, and how fast old ones
  /// fade, is counted in rounds of all ranks. `work` is what is planned, for phases that are not known.
  explicit Pace(const config::Supervise& limits, int world = 1, const RankWork& work = {});

  /// A rank has left `phase` after `seconds`, as seen in heartbeats: shorter phases may be missed, and need
  /// not be known.
  void left(control::Phase phase, double seconds);
  /// A rank has come to another step after `seconds`, as seen in heartbeats.
  void stepped(double seconds);
  /// Seconds after which a rank in `phase` is hung: max(hang_factor * longest time so far, hang_floor_s),
  /// never more than step_s. A phase of every step that has not been seen often enough may take as long as
  /// whole steps took, and first_bound_s while these are not known either. Twice as long at the beginning of
  /// an attempt: caches are cold and connections are being made. Not used while ranks hold on order.
  double deadline_s(control::Phase phase) const;
  /// A new attempt, on other nodes: known times stay, unfinished phases do not count.
  void new_attempt();

  /// All known times, for later leaders: by the name of the phase, and "step" for whole steps.
  std::map<std::string, events::KnownPace> known() const;
  /// Whole steps are known, and a leader that knows only `recorded` would set other deadlines: it would not
  /// know a phase, or its deadline would be too short by a fifth or too long by half.
  bool is_news(const std::map<std::string, events::KnownPace>& recorded) const;
  /// Takes over the times that an earlier leader has recorded.
  void recall(const std::map<std::string, events::KnownPace>& recorded);
  /// The attempt is past its first rounds, under an earlier leader.
  void settled();

 private:
  struct Learned {
    std::int64_t count = 0;       ///< times a rank left it, in all attempts
    std::int64_t in_attempt = 0;  ///< in this one
    double longest = 0;           ///< of the last ones, fading
    double longest_young = 0;     ///< of the first ones of any attempt
  };
  bool known(const Learned& what) const { return what.count >= enough_; }
  bool young(const Learned& what) const { return what.in_attempt < enough_; }
  void learn(Learned& what, double seconds);
  double rule(double seconds) const;
  template <class Self, class Visit>
  static void each(Self& self, Visit visit);

  config::Supervise limits_;
  RankWork work_;
  std::int64_t enough_;  ///< times that make a phase known
  double fade_;          ///< of `longest`, each time
  std::array<Learned, 16> phases_{};
  Learned steps_;
};

/// A rank is hung: the deadline that has passed, in seconds; nothing while all may still be working. A rank
/// that waits is as late as the one it waits for, and is excused while a rank that holds it up is within its
/// own deadline: one that is a step behind, that still writes a checkpoint, or that still computes while the
/// other is in the collective.
std::optional<double> overdue(std::span<const StillRank> ranks, const Pace& pace);

}  // namespace holdfast::launcher

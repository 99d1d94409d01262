#pragma once
// Hangs of ranks that do not report, from what their agents see of them. The ranks wait for each other, so
// when one hangs, all fall silent: the silence of the run is what counts, and how long silences were before.
// Pure.
//
//   silent since   the last time an eighth of the ranks had shown a sign of life (some print while they wait)
//   bound          max(hang_outside_s, hang_factor * the longest silence before)
//   not judged     before signs were seen for twice hang_outside_s in one attempt: a program may show none
//   a hang found   may be a silence of a program that is well: it counts as one of the bound's length, until
//                  an attempt has lived past the time where the other fell silent. Not where a rank was
//                  stopped. Where a rank still showed signs, the others may show some at their start only:
//                  none is judged before that time (an hour at most)
//   two in a row   fell silent at the same time of their first hour, nobody is known, and no rank was idle:
//                  the program may show signs at its start only, and none while it works. None is judged
//                  before that time
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "launcher/supervise/run_state.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// All times are in seconds of one clock.
class OutsideWatch {
 public:
  /// `unjudged_s`: RunState::unjudged_s.
  OutsideWatch(const config::Supervise& limits, const std::map<std::string, events::KnownPace>& known,
               double unjudged_s = 0);
  static constexpr const char* recorded_as = silence_pace;

  void new_attempt();
  void seen(int node, const control::RankSeen& what, double now);
  void ended(int rank) { ranks_.erase(rank); }

  struct Silence {
    double still_s = 0, bound_s = 0;
    int rank = -1;
    bool named = false;  ///< the rank is to blame; else any other may be, and it is the first
    std::string why;     ///< the evidence against it, or what is seen of several
  };
  /// Nothing while there may be life, and while one of `world` ranks has not been looked at lately.
  std::optional<Silence> overdue(int world, double now) const;
  /// The silence is taken for a hang.
  void taken_for_hung(const Silence& silence);
  /// No silence is judged before an attempt has shown signs for longer than this; 0: two in a row that were
  /// alike are not the reason for it.
  double unjudged_s() const { return doubt_ && doubt_->again ? doubt_->past_s : 0; }
  /// The longest silence, once it is known.
  std::optional<double> known() const;
  /// A leader that knows only `recorded` would not know it, or allow less than four fifths of the silence.
  bool is_news(const std::map<std::string, events::KnownPace>& recorded) const;
  void extend_deadlines(double seconds, double now);

 private:
  struct Rank {
    int node = -1;
    double looked_at = -1;  ///< < 0: never
    double life_at = -1;    ///< its last sign of life; < 0: none yet
    double cpu_share = 0;
    char state = '?';
  };
  double last_life() const;
  double bound_s(double silence_s) const;
  /// Whose the hang is, and the evidence; -1: nobody is known.
  std::pair<int, std::string> culprit() const;

  config::Supervise limits_;
  std::map<int, Rank> ranks_;
  double first_life_ = -1, last_life_ = -1;  ///< of the run, in this attempt; < 0: none yet
  double longest_ = 0;                       ///< silence between two of them, in any attempt
  double counted_at_ = -1;                   ///< when the ranks were counted last; < 0: not yet
  /// A hang that may have been none.
  struct Doubt {
    double silence_s = 0;  ///< counts as one that was seen, ...
    double past_s = 0;     ///< ... until an attempt has lived for longer than this
    double lived_s = 0;    ///< until the silence began
    bool open = false;     ///< it may have been at work: nobody is known, and no rank was idle
    bool again = false;    ///< so was the one before, at the same time
  };
  std::optional<Doubt> doubt_;
  bool known_ = false;
};

}  // namespace holdfast::launcher

#pragma once
// Reading what may only be out of reach for a while: again and again with growing pauses, and then no more.
#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "checkpoint/index/manifest.hpp"
#include "src/base/clock.hpp"

namespace holdfast::checkpoint {

/// What a reader does while it waits.
struct Patience {
  Millis limit{};  ///< from the first failure on (checkpoint.read_patience_s)
  /// Called before each pause, with what went wrong: for a line in a log, and for whoever watches that this
  /// process still moves.
  std::function<void(const Error& why, bool first)> waits = {};
};

/// The pauses of one wait, and its end.
class Retries {
 public:
  explicit Retries(const Patience& patience) : patience_(patience), over_(Deadline::in(patience.limit)) {}
  bool over() const { return over_.passed(); }
  /// Waits for a moment, longer each time.
  void pause(const Error& why) {
    constexpr Millis longest{1000};
    if (patience_.waits) patience_.waits(why, first_);
    first_ = false;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause_, over_.left()));
    pause_ = std::min(2 * pause_, longest);
  }

 private:
  const Patience& patience_;
  Deadline over_;
  Millis pause_{50};
  bool first_ = true;
};

/// The same error, for those who have to read that it lasted.
inline Error given_up(const Error& why, const Patience& patience) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience.limit).count();
  return {why.exit(), why.problem(), why.why() + ", and so for " + std::to_string(seconds) + " s",
          why.hint().empty() ? "Start the run again when it can be read. If it is lost: run.resume = another "
                               "checkpoint, in a new run.dir?"
                             : why.hint()};
}

/// `read`, until it throws no transient Error (Unreadable is one) any more; when patience is over,
/// given_up().
template <class Read>
auto patiently(const Patience& patience, Read read) {
  std::optional<Retries> retries;
  for (;;) {
    try {
      return read();
    } catch (const Error& why) {
      if (why.exit() != Exit::transient) throw;
      if (!retries) retries.emplace(patience);
      if (retries->over()) throw given_up(why, patience);
      retries->pause(why);
    }
  }
}

}  // namespace holdfast::checkpoint

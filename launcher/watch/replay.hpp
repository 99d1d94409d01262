#pragma once
// A run that is over, shown again by its events and metrics. Pure.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/watch/screen.hpp"

namespace holdfast::launcher::watch {

class Replay {
 public:
  /// `end`: the view of the run at its end. `steps`: lines of metrics, of which those without a time are left
  /// out. It begins at the first event or step, and is over after a minute.
  Replay(const View& end, std::vector<nlohmann::json> steps);

  /// `seconds` of the user's time have passed.
  void pass(double seconds);
  /// ' ': hold or go on; '<', '>': a twentieth back or ahead; '+', '-': twice or half as fast; 'r',
  /// Escape: the end; 'q': also of the view. Others mean nothing.
  void take(char key);
  bool over() const { return over_; }
  bool quit() const { return quit_; }
  /// The run as it was at that moment.
  View view() const;

 private:
  std::string footer() const;

  View end_;
  std::vector<std::pair<double, nlohmann::json>> steps_;  ///< by time, Unix seconds
  double from_ = 0, to_ = 0, at_ = 0;
  double speed_ = 1;  ///< seconds of the run in a second
  bool held_ = false, over_ = false, quit_ = false;
};

/// The lines of steps for a replay: at most so many, and of a longer run every second, fourth, ... of them.
class StepTape {
 public:
  static constexpr std::size_t most = 20000;
  void add(const nlohmann::json& line);
  void clear() { *this = {}; }
  const std::vector<nlohmann::json>& lines() const { return lines_; }

 private:
  std::vector<nlohmann::json> lines_;
  std::int64_t stride_ = 1, count_ = 0;
};

}  // namespace holdfast::launcher::watch

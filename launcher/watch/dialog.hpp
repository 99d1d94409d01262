#pragma once
// What keys mean: each order is asked about first. Pure.
#include <optional>
#include <string>
#include <utility>

#include "src/control/message.hpp"

namespace holdfast::launcher::watch {

/// An order that was answered with yes.
struct Confirmed {
  control::Order::Verb verb = control::Order::Verb::save;
  std::string node;  ///< for evict
  bool operator==(const Confirmed&) const = default;
};

/// Of the run, when a key is pressed.
struct Situation {
  bool over = false;  ///< no agent is there to take an order
  bool paused = false;
};

class Dialog {
 public:
  /// Takes a character; an order when it was the yes to one.
  std::optional<Confirmed> take(char key, const Situation& now);
  bool quit() const { return quit_; }
  /// The run is over, and is to be shown again; true once.
  bool replay() { return std::exchange(replay_, false); }
  /// The question that waits for an answer, or what the keys do.
  std::string line(const Situation& now) const;
  /// A question waits for an answer.
  bool asks() const { return state_ != State::keys; }

 private:
  enum class State { keys, node, sure };
  void begin(char key, const Situation& now);
  void type(char key);

  State state_ = State::keys;
  Confirmed order_;
  bool quit_ = false, replay_ = false;
};

}  // namespace holdfast::launcher::watch

#pragma once
// The event loop: timers, readable descriptors, signals, posted work. A thin wrapper of Asio, so that only
// loop.cpp and what makes connections include it.
#include <functional>
#include <initializer_list>
#include <memory>

#include "src/base/clock.hpp"

namespace holdfast::control {

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs until stop(). All callbacks are called in the thread that runs this.
  void run();
  void stop();  ///< thread-safe
  /// Of all callbacks since the last call of this, the one that took most: s of processor time, so that other
  /// processes on the machine do not count. In the loop's thread.
  double longest_turn();
  void post(std::function<void()> work);  ///< thread-safe

  /// Destroying the handle cancels the timer.
  using Handle = std::shared_ptr<void>;
  [[nodiscard]] Handle after(Millis delay, std::function<void()> work);
  [[nodiscard]] Handle every(Millis period, std::function<void()> work);
  /// Calls once, when `fd` becomes readable (a pidfd: when the process has ended). The loop then owns `fd`.
  [[nodiscard]] Handle when_readable(int fd, std::function<void()> work);
  /// Calls for every signal; the argument is the signal's number.
  [[nodiscard]] Handle on_signals(std::initializer_list<int> signals, std::function<void(int)> work);

  struct Inside;  ///< Asio's context, for connections
  Inside& inside() { return *inside_; }

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace holdfast::control

#pragma once
// Work that is done again and again beside a loop that must not wait for it.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace holdfast::launcher {

class Repeated {
 public:
  /// `work` is called in a thread of its own, with `pause` between two calls. It owns what it touches, for a
  /// call may never return, and must not throw.
  Repeated(std::chrono::milliseconds pause, std::function<void()> work);
  Repeated(const Repeated&) = delete;
  /// Waits for nothing: a call that has begun may go on.
  ~Repeated();

  /// How long the present call has taken; nothing between two calls.
  std::optional<double> busy_for_s() const;
  /// The pause is over.
  void hurry();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace holdfast::launcher

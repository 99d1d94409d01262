#pragma once
// Work that may wait (for a disk, for a file system that is gone, for SLURM) beside a loop that must not.
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"
#include "src/control/loop.hpp"

namespace holdfast::control {

/// One thread that does what it is given, in order. Results come back in the loop's thread.
class Worker {
 public:
  /// What becomes of work that has not begun when the worker goes.
  enum class Rest { dropped, done };

  /// `farewell`: how long the destructor waits for what has begun, or for everything if the rest is to be
  /// done.
  explicit Worker(Loop& loop, Millis farewell = Millis(1000), Rest rest = Rest::dropped);
  Worker(const Worker&) = delete;
  /// What has begun and does not end in time is left to itself (it may be waiting for something that never
  /// comes): hence `work` must own what it touches. No `then` is called any more.
  ~Worker();

  /// `work` in the worker's thread, then `then` in the loop's. Neither may throw.
  void run(std::function<void()> work, std::function<void()> then = nullptr);
  /// The same for work with a result.
  template <class Work, class Then>
  void ask(Work work, Then then) {
    using Result = decltype(work());
    auto result = std::make_shared<std::optional<Result>>();
    run([result, work = std::move(work)]() mutable { result->emplace(work()); },
        [result, then = std::move(then)]() mutable { then(std::move(**result)); });
  }
  /// How long the piece of work that is under way has taken so far; nothing: none is.
  std::optional<Millis> busy_for() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  Millis farewell_;
  Rest rest_;
};

}  // namespace holdfast::control

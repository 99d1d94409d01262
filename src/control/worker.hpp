#pragma once
// Work that may block (on a disk, on a file system that is gone, on SLURM) beside a loop that must not.
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"
#include "src/control/loop.hpp"

namespace holdfast::control {

/// One thread that does the work it is given, in order. Results come back in the loop's thread.
class Worker {
 public:
  /// What becomes of work that has not begun when the worker is destroyed.
  enum class Rest { dropped, done };

  /// `shutdown_limit`: how long the destructor waits for work that has begun, or for all work with
  /// Rest::done.
  explicit Worker(Loop& loop, Millis shutdown_limit = Millis(1000), Rest rest = Rest::dropped);
  Worker(const Worker&) = delete;
  /// Work that has begun and does not end in time goes on in a detached thread (it may wait for something
  /// that never comes): hence `work` must own what it touches. No `then` is called any more.
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
  /// How long the work that is under way has taken so far; nothing: none is.
  std::optional<Millis> busy_for() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  Millis shutdown_limit_;
  Rest rest_;
};

}  // namespace holdfast::control

#pragma once
// A thread for work that may block (on a disk, on an unreachable file system, on SLURM), so that the event
// loop does not.
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"
#include "src/control/loop.hpp"

namespace holdfast::control {

/// One thread that runs the submitted work in order. Results are delivered in the loop's thread.
class Worker {
 public:
  /// What the destructor does with work that has not begun.
  enum class Rest { dropped, done };

  /// `shutdown_limit`: how long the destructor waits for work that has begun, or for all work with
  /// Rest::done.
  explicit Worker(Loop& loop, Millis shutdown_limit = Millis(1000), Rest rest = Rest::dropped)
      : thread_(loop.thread({shutdown_limit, rest == Rest::done})) {}
  Worker(const Worker&) = delete;
  /// Work that has begun and does not end in time continues in a detached thread (it may wait forever), so
  /// `work` must own the data that it uses. No `then` is called after the destructor.
  ~Worker() = default;

  /// Runs `work` in the worker's thread, then `then` in the loop's. Neither may throw.
  void run(std::function<void()> work, std::function<void()> then = nullptr) {
    thread_->run(std::move(work), std::move(then));
  }
  /// The same for work with a result.
  template <class Work, class Then>
  void ask(Work work, Then then) {
    using Result = decltype(work());
    auto result = std::make_shared<std::optional<Result>>();
    run([result, work = std::move(work)]() mutable { result->emplace(work()); },
        [result, then = std::move(then)]() mutable { then(std::move(**result)); });
  }
  /// How long the current work has taken so far; nothing when there is none.
  std::optional<Millis> busy_for() const { return thread_->busy_for(); }

 private:
  std::unique_ptr<Loop::Thread> thread_;
};

}  // namespace holdfast::control

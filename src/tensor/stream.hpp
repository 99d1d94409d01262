#pragma once
// The order of asynchronous work. Kernels take a stream and only enqueue; on the CPU the compute stream runs
// inline, so work is done when the call returns, and communication runs beside it.
#include <cstdint>

#include "src/base/clock.hpp"

namespace holdfast::tensor {

/// Work that somebody does in order: tickets 1, 2, ... pass one after the other.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual bool passed(std::uint64_t ticket) const = 0;
  /// The caller's thread waits until the ticket has passed. Throws Error (runtime) when the work failed or
  /// did not end within its own time limit; the error names the operation.
  virtual void wait(std::uint64_t ticket) = 0;
};

/// A point in a timeline. A value; nothing to free. Without a timeline it has always passed.
struct Event {
  Timeline* line = nullptr;
  std::uint64_t ticket = 0;

  bool passed() const { return line == nullptr || line->passed(ticket); }
  void wait() const {
    if (line != nullptr) line->wait(ticket);
  }
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// The point after everything enqueued so far.
  virtual Event record() = 0;
  /// Work enqueued later starts after `event`.
  virtual void wait(const Event& event) = 0;
};

/// The compute stream of the CPU: work runs on the caller's thread before the call returns.
class InlineStream : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.wait(); }
};

}  // namespace holdfast::tensor

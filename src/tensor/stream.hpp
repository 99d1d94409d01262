#pragma once
// The order of asynchronous work. Kernels take a stream and only enqueue; on the CPU the stream runs inline,
// so work is done when the call returns.
#include <cstdint>

#include "src/base/clock.hpp"

namespace holdfast::tensor {

/// A point in a stream: all that was enqueued before it. A value; nothing to free. Ticket 0 has always
/// passed.
struct Event {
  std::uint32_t stream = 0;
  std::uint64_t ticket = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// The point after everything enqueued so far.
  virtual Event record() = 0;
  /// Work enqueued later starts after `event`, of whatever stream.
  virtual void wait(Event event) = 0;
  /// The host waits for `event`; an Error (runtime) when it has not passed by the deadline.
  virtual void synchronize(Event event, const Deadline& deadline) = 0;
};

/// The compute stream of the CPU: work runs on the caller's thread before the call returns.
class InlineStream : public Stream {
 public:
  Event record() override { return {0, ++tickets_}; }
  void wait(Event) override {}
  void synchronize(Event, const Deadline&) override {}

 private:
  std::uint64_t tickets_ = 0;
};

}  // namespace holdfast::tensor

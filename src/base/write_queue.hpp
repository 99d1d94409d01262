#pragma once
// Writing to files on a thread of its own, for callers that must not wait for a file system.
#include <cstddef>
#include <functional>
#include <memory>

#include "src/base/clock.hpp"

namespace holdfast {

/// Carries out writes in the order in which they were added. The thread starts with the first one.
class WriteQueue {
 public:
  /// `max_bytes` may wait in memory. `flush_at_end`: how long the destructor waits for the writes that are
  /// left.
  WriteQueue(std::size_t max_bytes, Millis flush_at_end);
  WriteQueue(const WriteQueue&) = delete;
  /// Drops what did not begin in time. A write that is still under way keeps its thread (a file system may
  /// never answer): hence `write` must own what it touches.
  ~WriteQueue();

  /// Never waits for a file system. False: there is no room for `bytes` more, and `write` is not taken. A
  /// write of any size is taken when no other waits, and one of 0 bytes always. `write` must not throw.
  bool add(std::size_t bytes, std::function<void()> write);
  /// Waits for all that was added before; false when the limit came first.
  bool flush(Millis limit);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::size_t max_bytes_;
  Millis flush_at_end_;
};

}  // namespace holdfast

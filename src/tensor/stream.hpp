#pragma once
// The order of asynchronous work. Kernels take a stream and only enqueue; on the CPU the compute stream runs
// inline, so work is done when the call returns, and communication runs beside it.
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

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

/// Something to call during a call; owns nothing, allocates nothing.
class Task {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, Task>>>
  Task(const F& f) : object_(&f), call_([](const void* object) { (*static_cast<const F*>(object))(); }) {}
  void operator()() const { call_(object_); }

 private:
  const void* object_;
  void (*call_)(const void*);
};

/// Work in the order in which it was enqueued, on memory of one device (or host memory that the device gave).
class Stream {
 public:
  virtual ~Stream() = default;
  /// The point after everything enqueued so far.
  virtual Event record() = 0;
  /// Work enqueued later starts after `event`.
  virtual void wait(const Event& event) = 0;

  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void zero(void* to, std::int64_t bytes) = 0;
  /// From any host memory, which may change as soon as the call has returned.
  virtual void upload(void* to, const void* from, std::int64_t bytes) = 0;
  /// To any host memory: when the call returns, what was enqueued before is done and `to` is filled. Throws
  /// like Timeline::wait().
  virtual void download(void* to, const void* from, std::int64_t bytes) = 0;

  /// Enqueues `work`, which is the same kernel calls with the same arguments whenever `key` is the same: it
  /// may be recorded once and replayed from then on without being called. `work` neither waits, records,
  /// uploads nor downloads.
  virtual void repeat(std::span<const std::uint64_t> key, Task work) = 0;
};

/// The compute stream of the CPU: work runs on the caller's thread before the call returns.
class InlineStream : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.wait(); }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void zero(void* to, std::int64_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  void upload(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void repeat(std::span<const std::uint64_t>, Task work) override { work(); }
};

}  // namespace holdfast::tensor

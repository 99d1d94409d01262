#pragma once
// Who looks after operations that nobody waits for. A GPU stream that waits for a dead peer waits for ever,
// so a thread of the host looks every millisecond at how far the streams are, at the clock, and at what other
// ranks have found.
//
// It reads words in host memory that the streams write and never calls the GPU: what hangs there does not
// hold it up.
//
// The first failure of one group ends all groups of the device, in this order: (1) every group is told to
// give nothing more to others that could be taken for good (peers are told, NCCL is aborted), (2) the streams
// are let go, with whatever is in memory. So nobody takes what comes after a failure for a result: whoever
// waits for an event hears of the failure first (check()), here and on every rank that shares a group with
// this one.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "src/base/error.hpp"

namespace holdfast::cuda {

class BulkGroup;

class Watch {
 public:
  /// `own_thread`: looks by itself; else only check() does.
  explicit Watch(bool own_thread = true);
  /// All groups are gone.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void add(BulkGroup& group);
  void remove(BulkGroup& group) noexcept;
  /// There is something to look after.
  void wake() noexcept;

  /// Looks at all groups now. Throws the failure, if there was one. To be called whenever somebody waits for
  /// a stream of the device, and again after what was waited for has passed and before its result is used.
  /// Any thread.
  void check();
  /// Ends all groups with this failure, unless they have one.
  void fail(const Error& error) noexcept;
  /// The failure that ended this device's groups; none when all is well.
  std::optional<Error> failure() const;

 private:
  void run();
  /// True while something is under way. Holds mutex_.
  bool look() noexcept;
  void end_all(const Error& error) noexcept;

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<BulkGroup*> groups_;
  std::optional<Error> failure_;
  std::atomic<bool> failed_{false}, idle_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace holdfast::cuda

#pragma once
// Files of folders are not removed while a test says so: a file system that is slow to delete. For one source
// of a test program.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace holdfast::tests {

class HeldRemovals {
 public:
  void hold() { set(true); }
  void let_go() { set(false); }
  /// True once a removal waits.
  bool wait_for_one() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [this] { return waiting_ > 0; });
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    --waiting_;
  }

 private:
  void set(bool held) {
    const std::scoped_lock lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
};

inline HeldRemovals removals;

}  // namespace holdfast::tests

/// Stands before that of the C library, also for the C++ library.
extern "C" int unlinkat(int folder, const char* name, int flags) noexcept {
  holdfast::tests::removals.pass();
  return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}

#pragma once
// How the communication threads of a node wake each other. One per rank, in memory that the node shares.
// Ranks share cores: whoever has nothing to do must sleep, and who rings must not pay for a system call when
// nobody sleeps.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace holdfast::comm {

struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> asleep{0};

  /// What was written before is seen by whoever answers.
  void ring() {
    rings.fetch_add(1);
    if (asleep.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  /// Returns when somebody has rung since `heard` was read from `rings`, and after `longest` at the latest.
  void sleep(std::uint32_t heard, std::chrono::nanoseconds longest) {
    asleep.store(1);
    const timespec time{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
    if (rings.load() == heard) syscall(SYS_futex, &rings, FUTEX_WAIT, heard, &time, nullptr, 0);
    asleep.store(0);
  }
};

}  // namespace holdfast::comm

#pragma once
// The memory that snapshots wait in until they are on disk: one or two arenas, allocated and touched once; or
// one that is allocated when it is taken, where saves are rare.
//
//   arena     whose                                        next
//   free      the pool's                                   take() -> taken
//   taken     filled by a copy, then read by the writer    give() -> free
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "src/base/clock.hpp"
#include "src/device/device.hpp"
#include "src/train/common/lazy_memory.hpp"

namespace holdfast::train {

class ArenaPool {
 public:
  /// `count` arenas of `bytes`, zeroed, aligned to 4096, in host memory that `device` copies to at full
  /// speed. Throws Error (runtime) when there is not enough. 0: nothing is kept; one arena of any host memory
  /// lives from take() to give().
  ArenaPool(device::Device& device, std::int64_t bytes, int count);

  std::optional<std::span<std::byte>> try_take();
  /// Waits for one. Nothing: none was given back in time.
  std::optional<std::span<std::byte>> take(Deadline deadline);
  void give(std::span<std::byte> arena);
  /// Any thread may ask; true may be over when it is read.
  bool has_free();
  std::int64_t bytes() const { return bytes_; }  ///< of all arenas that stay

 private:
  /// Under mutex_.
  std::optional<std::span<std::byte>> take_now();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::span<std::byte>> free_;
  std::int64_t bytes_ = 0;
  const std::int64_t passing_bytes_;  // of an arena that is allocated when it is taken; 0: they stay
  std::optional<LazyMemory> passing_;
};

}  // namespace holdfast::train

#include "src/train/state/arena_pool.hpp"

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {
constexpr const char* purpose = "snapshots on their way to disk";
}

ArenaPool::ArenaPool(device::Device& device, std::int64_t bytes, int count)
    : passing_bytes_(count == 0 ? std::max<std::int64_t>(bytes, 1) : 0) {
  expects(count >= 0, "a number of arenas");
  for (int i = 0; i < count; ++i) free_.push_back(device.allocate_host(bytes, purpose));
  bytes_ = bytes * count;
}

std::optional<std::span<std::byte>> ArenaPool::take_now() {
  if (passing_bytes_ > 0) {
    if (passing_) return std::nullopt;
    return passing_.emplace(passing_bytes_, purpose).span();
  }
  if (free_.empty()) return std::nullopt;
  const auto arena = free_.back();
  free_.pop_back();
  return arena;
}

std::optional<std::span<std::byte>> ArenaPool::try_take() {
  const std::scoped_lock lock(mutex_);
  return take_now();
}

std::optional<std::span<std::byte>> ArenaPool::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  std::optional<std::span<std::byte>> arena;
  changed_.wait_for(lock, deadline.left(), [&] { return (arena = take_now()).has_value(); });
  return arena;
}

void ArenaPool::give(std::span<std::byte> arena) {
  {
    const std::scoped_lock lock(mutex_);
    if (passing_)
      passing_.reset();
    else
      free_.push_back(arena);
  }
  changed_.notify_all();
}

bool ArenaPool::has_free() {
  const std::scoped_lock lock(mutex_);
  return passing_bytes_ > 0 ? !passing_ : !free_.empty();
}

}  // namespace holdfast::train

#include "src/train/arena_pool.hpp"

#include "src/base/error.hpp"

namespace holdfast::train {

ArenaPool::ArenaPool(device::Device& device, std::int64_t bytes, int count) {
  expects(count > 0, "there is an arena");
  for (int i = 0; i < count; ++i)
    free_.push_back(device.allocate_host(bytes, "snapshots on their way to disk"));
  bytes_ = bytes * count;
}

std::optional<std::span<std::byte>> ArenaPool::try_take() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const auto arena = free_.back();
  free_.pop_back();
  return arena;
}

std::span<std::byte> ArenaPool::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !free_.empty(); });
  const auto arena = free_.back();
  free_.pop_back();
  return arena;
}

void ArenaPool::give(std::span<std::byte> arena) {
  {
    const std::scoped_lock lock(mutex_);
    free_.push_back(arena);
  }
  changed_.notify_all();
}

bool ArenaPool::has_free() {
  const std::scoped_lock lock(mutex_);
  return !free_.empty();
}

}  // namespace holdfast::train

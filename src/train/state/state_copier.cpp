#include "src/train/state/state_copier.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t part_bytes = 4 << 20;  // what a thread takes at a time

class HostCopier final : public StateCopier {
 public:
  explicit HostCopier(CopyBytes copy) : copy_(std::move(copy)), thread_([this] { serve(); }) {}
  ~HostCopier() override {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin(std::span<const Copy> list) override {
    std::unique_lock lock(mutex_);
    expects(!begun_, "one list is copied at a time");
    changed_.wait(lock, [this] { return inside_ == 0; });  // a thread that came late to the list before
    parts_.clear();
    for (const Copy& whole : list)
      for (std::int64_t at = 0; at < whole.bytes; at += part_bytes)
        parts_.push_back({whole.to + at, whole.from + at, std::min(part_bytes, whole.bytes - at)});
    next_.store(0, std::memory_order_relaxed);
    begun_ = true;
    changed_.notify_all();
  }

  double join() override {
    if (!begun_) return 0;  // only the thread that begins writes it
    const auto start = Clock::now();
    take_parts();
    std::unique_lock lock(mutex_);
    begun_ = false;  // every part is taken
    changed_.wait(lock, [this] { return inside_ == 0; });
    return seconds_since(start);
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || (begun_ && next_ < parts_.size()); });
      if (ending_) return;
      ++inside_;
      lock.unlock();
      take_parts();
      lock.lock();
      --inside_;
      changed_.notify_all();
    }
  }

  void take_parts() {
    for (std::size_t i = 0; (i = next_.fetch_add(1, std::memory_order_relaxed)) < parts_.size();)
      copy_(parts_[i].to, parts_[i].from, as_size(parts_[i].bytes));
  }

  CopyBytes copy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Copy> parts_;           // changes only while nobody is inside
  std::atomic<std::size_t> next_{0};  // the first part that nobody has taken
  int inside_ = 0;                    // threads, beside the joining one, that copy
  bool begun_ = false, ending_ = false;
  std::thread thread_;
};

class DeviceCopier final : public StateCopier {
 public:
  explicit DeviceCopier(device::Device& device) : device_(device) {}

  void begin(std::span<const Copy> list) override {
    expects(!begun_, "one list is copied at a time");
    tensor::Stream& side = device_.side();
    side.wait(device_.compute().record());
    for (const Copy& copy : list) side.copy(copy.to, copy.from, copy.bytes);
    copied_ = side.record();
    begun_ = true;
  }

  double join() override {
    if (!begun_) return 0;
    const auto start = Clock::now();
    begun_ = false;
    copied_.wait();
    return seconds_since(start);
  }

 private:
  device::Device& device_;
  tensor::Event copied_;
  bool begun_ = false;
};

class WindowCopier final : public StateCopier {
 public:
  explicit WindowCopier(StateWindow& window) : window_(window) {}

  void begin(std::span<const Copy> list) override {
    expects(list_.empty(), "one list is copied at a time");
    list_.assign(list.begin(), list.end());
  }

  double join() override {
    if (list_.empty()) return 0;
    const auto start = Clock::now();
    for (const Copy& copy : list_)
      window_.read(copy.from, copy.bytes, [&](std::span<const std::byte> part, std::int64_t at) {
        std::memcpy(copy.to + at, part.data(), part.size());
      });
    list_.clear();
    return seconds_since(start);
  }

 private:
  StateWindow& window_;
  std::vector<Copy> list_;
};

}  // namespace

#if defined(__SSE2__)
/// Past the caches, whole lines at a time: nobody reads the copy soon, and a line that is written as a whole
/// need not be read before.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t line = 64, vector = sizeof(__m128i);
  const std::size_t before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % line);
  std::memcpy(to, from, before);
  to += before;
  from += before;
  bytes -= before;
  const std::size_t whole = bytes - bytes % line;
  for (std::size_t at = 0; at < whole; at += line)
    for (std::size_t i = at; i < at + line; i += vector)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();  // before anybody is told that it is there
  std::memcpy(to + whole, from + whole, bytes - whole);
}
#else
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

std::unique_ptr<StateCopier> make_host_copier(CopyBytes copy) {
  return std::make_unique<HostCopier>(std::move(copy));
}
std::unique_ptr<StateCopier> make_device_copier(device::Device& device) {
  return std::make_unique<DeviceCopier>(device);
}
std::unique_ptr<StateCopier> make_window_copier(StateWindow& window) {
  return std::make_unique<WindowCopier>(window);
}
std::unique_ptr<StateCopier> make_state_copier(device::Device& device) {
  return device.is_host() ? make_host_copier() : make_device_copier(device);
}

}  // namespace holdfast::train

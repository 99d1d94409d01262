#pragma once
// The memory layout of a flight record: 64-bit words, each read and written as an atomic, guarded by a
// version that is odd during a write (a seqlock). A writer that dies in a write loses one entry, not the
// record.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "src/flight/recorder.hpp"

namespace holdfast::flight {

template <class T>
class Guarded {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

  /// For one writer.
  void write(const T& value) {
    std::array<std::uint64_t, words> plain;
    std::memcpy(plain.data(), &value, sizeof value);
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version | 1, std::memory_order_relaxed);
    // Release: a reader that sees one of these words also sees the odd version.
    for (std::size_t i = 0; i < words; ++i) words_[i].store(plain[i], std::memory_order_release);
    version_.store((version | 1) + 1, std::memory_order_release);
  }
  /// Nothing when a writer is writing it, or wrote it during the read.
  std::optional<T> read() const { return read(*this); }
  /// The value on which this and `later` (a later copy, or the same) agree.
  std::optional<T> read(const Guarded& later) const {
    std::array<std::uint64_t, words> plain;
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      for (std::size_t i = 0; i < words; ++i) plain[i] = words_[i].load(std::memory_order_acquire);
      if (later.version_.load(std::memory_order_relaxed) != before || !later.holds(plain)) continue;
      T value;
      std::memcpy(static_cast<void*>(&value), plain.data(), sizeof value);
      return value;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t words = sizeof(T) / 8;
  bool holds(const std::array<std::uint64_t, words>& plain) const {
    for (std::size_t i = 0; i < words; ++i)
      if (words_[i].load(std::memory_order_relaxed) != plain[i]) return false;
    return true;
  }
  std::atomic<std::uint64_t> version_{0};
  std::array<std::atomic<std::uint64_t>, words> words_{};
};

struct FlightMemory {
  static constexpr std::uint64_t right_magic = 0x31304c46'5446'4448;  // "HDFTFL01"
  std::uint64_t magic = 0;                                            ///< written last
  std::uint64_t bytes = sizeof(FlightMemory);
  std::int64_t process = 0;
  std::int32_t rank = 0, world = 0;
  std::array<Guarded<FlightGroup>, FlightRecorder::groups> groups;
  std::array<Guarded<FlightEntry>, FlightRecorder::entries> entries;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "atomics between processes");

/// The entries on which two copies of a record agree, after validation: names end, enumerators exist, numbers
/// are in range. With only one copy both arguments are the same.
FlightRecord decode(const FlightMemory& first, const FlightMemory& second);

}  // namespace holdfast::flight

#pragma once
// The GPU that a test of kernels runs on: the simulator where there is none, else a real one. The test's
// source is the same; what it links decides.
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda::test {

Runtime& gpu();
/// A stream of gpu()'s.
StreamHandle stream();
/// Waits for everything enqueued on stream(); throws what the work found (of the simulator: sim::Finding).
void finish();
/// Another order of threads, blocks and streams from here on. A real GPU has its own.
void reseed(std::uint64_t seed);

/// n elements of gpu()'s memory, poisoned: NaN as floats of any type. Aligned to 4096. Copies go behind
/// everything enqueued on stream().
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>, "copied as bytes");

 public:
  explicit DeviceArray(std::size_t n) : n_(n) {
    data_ = static_cast<T*>(gpu().device_alloc(bytes() > 0 ? bytes() : 1));
    poison();
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) { upload(values); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  ~DeviceArray() { gpu().device_free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return n_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(n_ * sizeof(T)); }

  /// The first values.size() elements.
  void upload(std::span<const T> values) {
    Staging staging(static_cast<std::int64_t>(values.size_bytes()));
    if (values.empty()) return;
    std::memcpy(staging.memory, values.data(), values.size_bytes());
    gpu().copy(stream(), data_, staging.memory, static_cast<std::int64_t>(values.size_bytes()));
    finish();
  }
  std::vector<T> download() const {
    std::vector<T> values(n_);
    Staging staging(bytes());
    if (n_ == 0) return values;
    gpu().copy(stream(), staging.memory, data_, bytes());
    finish();
    std::memcpy(values.data(), staging.memory, n_ * sizeof(T));
    return values;
  }
  /// All bytes 0xFF.
  void poison() {
    Staging staging(bytes());
    if (n_ == 0) return;
    std::memset(staging.memory, 0xff, n_ * sizeof(T));
    gpu().copy(stream(), data_, staging.memory, bytes());
    finish();
  }

 private:
  struct Staging {
    explicit Staging(std::int64_t bytes) : memory(gpu().host_alloc(bytes > 0 ? bytes : 1)) {}
    ~Staging() { gpu().host_free(memory); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    void* memory;
  };

  T* data_ = nullptr;
  std::size_t n_;
};

}  // namespace holdfast::cuda::test

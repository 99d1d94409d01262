#pragma once
// Host memory for what is there only now and then: zeros, of which each page is taken when it is first
// touched, and all are given back with the object. Nothing pins it.
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {

class LazyMemory {
 public:
  /// Aligned to a page. Throws Error (runtime) that says what it was for.
  LazyMemory(std::int64_t bytes, const std::string& what) : bytes_(as_size(bytes)) {
    if (bytes_ == 0) return;
    data_ =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED)
      throw system_error("no host memory for " + what + " (" + std::to_string(bytes) + " bytes)", errno);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // only a hint
  }
  ~LazyMemory() {
    if (bytes_ > 0) ::munmap(data_, bytes_);
  }
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;

  std::span<std::byte> span() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace holdfast::train

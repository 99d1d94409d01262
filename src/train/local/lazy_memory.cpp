#include "src/train/local/lazy_memory.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::train {

LazyMemory::LazyMemory(std::int64_t bytes) : bytes_(std::max<std::int64_t>(bytes, 1)) {
  void* const memory =
      ::mmap(nullptr, as_size(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(Exit::runtime, fmt::format("{} bytes of memory cannot be allocated", bytes_),
                std::strerror(errno));
  memory_ = static_cast<std::byte*>(memory);
  ::madvise(memory_, as_size(bytes_), MADV_HUGEPAGE);  // a hint: fewer pages to touch and to pin
}

LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : bytes_(other.bytes_), memory_(std::exchange(other.memory_, nullptr)) {}

LazyMemory::~LazyMemory() {
  if (memory_ != nullptr) ::munmap(memory_, as_size(bytes_));
}

}  // namespace holdfast::train

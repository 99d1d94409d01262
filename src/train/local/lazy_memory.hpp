#pragma once
// Memory of zeros that takes no room until it is touched.
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/as_size.hpp"

namespace holdfast::train {

class LazyMemory {
 public:
  /// Throws Error (runtime) where there is no room in the address space.
  explicit LazyMemory(std::int64_t bytes);
  LazyMemory(LazyMemory&& other) noexcept;
  LazyMemory& operator=(LazyMemory&&) = delete;
  ~LazyMemory();
  std::span<std::byte> span() const { return {memory_, as_size(bytes_)}; }

 private:
  std::int64_t bytes_;
  std::byte* memory_;
};

}  // namespace holdfast::train

#include "src/base/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include "src/base/as_size.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
thread_local bool counted = false;
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {
void* allocate(std::size_t bytes, std::size_t alignment = 0) {
  if (counted) allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes == 0) bytes = 1;
  void* const memory = alignment == 0
                           ? std::malloc(bytes)
                           : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// The forms for arrays and for std::nothrow call these.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, holdfast::as_size(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace holdfast {

Allocations::Allocations() : before_(allocations.load(std::memory_order_relaxed)), counted_before_(counted) {
  counted = true;
}
Allocations::~Allocations() { counted = counted_before_; }
std::uint64_t Allocations::so_far() const { return allocations.load(std::memory_order_relaxed) - before_; }

}  // namespace holdfast

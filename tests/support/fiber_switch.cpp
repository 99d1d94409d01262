#include "tests/support/fiber_switch.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#error "the simulators switch between fibers in x86-64 assembly"
#endif

// Saves what a call preserves, stores the stack pointer, continues on another stack. (ucontext would make a
// system call at every switch.)
extern "C" void holdfast_switch_stack(void** save, void* load);
asm(R"(
.pushsection .text
.hidden holdfast_switch_stack
.globl holdfast_switch_stack
.type holdfast_switch_stack, @function
holdfast_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size holdfast_switch_stack, .-holdfast_switch_stack
.popsection
)");

namespace holdfast::test {
namespace {

constexpr std::size_t page = 4096;

/// Stacks that were used last come first: they are in the cache.
thread_local std::vector<std::unique_ptr<Stack>> free_stacks;

}  // namespace

Stack::Stack(std::size_t mapped) : mapped_(mapped) {
  void* base =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
  mprotect(base_, page, PROT_NONE);
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Stack::~Stack() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(base_, mapped_);
}

/// ThreadSanitizer keeps the frames that a fiber never left, and has room for some ten thousand.
void Stack::begin() {
#if defined(__SANITIZE_THREAD__)
  if (++fibers_ % 1000 != 0) return;
  __tsan_destroy_fiber(tsan_);
  tsan_ = __tsan_create_fiber(0);
#endif
}

std::byte* Stack::low() const { return base_ + page; }
std::byte* Stack::high() const { return base_ + mapped_; }

FiberSwitch::FiberSwitch(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_get_current_fiber();
#endif
}

void FiberSwitch::start(Context& fiber, void (*entry)()) {
  if (free_stacks.empty() || free_stacks.back()->mapped() != stack_bytes_)
    free_stacks.push_back(std::make_unique<Stack>(stack_bytes_));
  fiber.stack = std::move(free_stacks.back());
  free_stacks.pop_back();
  fiber.stack->begin();
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack->low(), fiber.stack->bytes());
#endif
  // What holdfast_switch_stack() takes from a stack: six registers, then where to go on; above it an empty
  // return address, so that `entry` finds the stack aligned as after a call.
  auto** top = reinterpret_cast<void**>(fiber.stack->high());
  std::fill(top - 8, top, nullptr);
  top[-2] = reinterpret_cast<void*>(entry);
  fiber.pointer = top - 8;
  fiber.fake_stack = nullptr;
}

void FiberSwitch::resume(Context& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack->low(), fiber.stack->bytes());
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fiber.stack->tsan(), 0);
#endif
  holdfast_switch_stack(&pointer_, fiber.pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void FiberSwitch::drop(Context& fiber) {
  if (fiber.stack) free_stacks.push_back(std::move(fiber.stack));
}

void FiberSwitch::entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &low_, &bytes_);
#endif
}

void FiberSwitch::suspend(Context& fiber, [[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, low_, bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_, 0);
#endif
  holdfast_switch_stack(&fiber.pointer, pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &low_, &bytes_);
#endif
}

}  // namespace holdfast::test

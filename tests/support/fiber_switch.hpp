#pragma once
// Stacks of their own on one thread, and how to go from one to another. Sanitizers are told.
#include <cstddef>
#include <memory>

#include "src/base/as_size.hpp"

namespace holdfast::test {

/// Below it is a page that traps.
class Stack {
 public:
  explicit Stack(std::size_t mapped);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  std::byte* low() const;
  std::byte* high() const;
  std::size_t bytes() const { return as_size(high() - low()); }
  std::size_t mapped() const { return mapped_; }  ///< bytes, with that page
  void* tsan() const { return tsan_; }
  void begin();  ///< a fiber will run on it

 private:
  std::size_t mapped_;
  std::byte* base_ = nullptr;
  void* tsan_ = nullptr;
  int fibers_ = 0;
};

/// Between the stack where resume() is called and fibers, of which one runs at a time.
class FiberSwitch {
 public:
  struct Context {
    std::unique_ptr<Stack> stack;
    void* pointer = nullptr;     ///< where it goes on
    void* fake_stack = nullptr;  ///< ASan's
  };

  /// `stack_bytes`: of a fiber's stack, with the page that traps.
  explicit FiberSwitch(std::size_t stack_bytes);
  /// The next resume() calls `entry` on a stack of its own. It begins with entered() and ends with suspend():
  /// it never returns.
  void start(Context& fiber, void (*entry)());
  /// Returns when the fiber suspends.
  void resume(Context& fiber);
  /// The fiber is not needed any more; nothing that is on its stack is destroyed.
  static void drop(Context& fiber);

  // On the fiber
  void entered();
  void suspend(Context& fiber, bool for_good);

 private:
  std::size_t stack_bytes_;
  void* pointer_ = nullptr;  ///< of the stack where resume() was called, while a fiber runs
  void* fake_stack_ = nullptr;
  const void* low_ = nullptr;
  std::size_t bytes_ = 0;
  void* tsan_ = nullptr;
};

}  // namespace holdfast::test

// A process that hangs, for stacks_test: stack_target futex|loop|plain|threads|kernel. "ready" on stdout,
// then it hangs; `threads`: its first thread ends, and another one stays; `kernel`: it waits in the kernel.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <thread>

#include "src/flight/stack_dump.hpp"

namespace stack_target {

std::mutex mutex;
std::condition_variable never;
std::atomic<std::uint64_t> turns{0};

__attribute__((noinline)) void wait_for_ever() {
  std::unique_lock lock(mutex);
  never.wait(lock, [] { return turns.load() == 1; });
}
__attribute__((noinline)) void turn_for_ever() {
  for (;;) turns.fetch_add(2);
}

}  // namespace stack_target

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how != "plain") holdfast::flight::dump_stacks_on_signal();
  std::thread waits(stack_target::wait_for_ever);
  std::puts("ready");
  std::fflush(stdout);
  if (how == "threads") ::syscall(SYS_exit, 0);  // of this thread
  // As vfork(), which ThreadSanitizer makes a fork(): the caller waits in the kernel for the child.
  if (how == "kernel" &&
      ::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  if (how == "loop") stack_target::turn_for_ever();
  waits.join();
}

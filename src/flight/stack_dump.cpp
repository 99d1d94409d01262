#include "src/flight/stack_dump.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "src/base/error.hpp"

namespace holdfast::flight {
namespace {

constexpr int max_calls = 64;
constexpr int own_calls = 2;  // this handler's frame and the kernel's signal frame

/// One line in one write, so that lines of several threads do not mix.
void say(std::string_view what, long thread) {
  std::array<char, 64> line{};
  std::size_t end = what.copy(line.data(), 40);
  std::array<char, 20> digits{};
  std::size_t count = 0;
  do digits[count++] = static_cast<char>('0' + thread % 10);
  while ((thread /= 10) > 0);
  while (count > 0) line[end++] = digits[--count];
  line[end++] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), end);  // else nobody reads it
}

void handle(int) {
  const int kept = errno;
  std::array<void*, max_calls> calls{};
  const int count = ::backtrace(calls.data(), max_calls);
  const long thread = ::syscall(SYS_gettid);
  say(stack_begins, thread);
  const int skipped = count > own_calls ? own_calls : 0;
  ::backtrace_symbols_fd(calls.data() + skipped, count - skipped, STDERR_FILENO);
  say(stack_ends, thread);
  errno = kept;
}

}  // namespace

int stack_signal() { return SIGRTMIN + 5; }

void dump_stacks_on_signal() {
  std::array<void*, 2> calls{};
  ::backtrace(calls.data(), static_cast<int>(calls.size()));  // the first call loads the unwinder
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(stack_signal(), &action, nullptr) != 0) throw system_error("cannot catch a signal", errno);
}

}  // namespace holdfast::flight

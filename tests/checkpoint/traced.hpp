#pragma once
// A child process whose system calls are watched from outside: it can be killed at any one of them that
// changes files, or told that the call failed. Nothing in the product knows about this.
#include <functional>
#include <string>

namespace holdfast::checkpoint::testing {

/// What happens at the chosen call.
enum class Fault { none, kill, io_error, no_space, half_write };

struct Traced {
  bool traced = false;  ///< false: this machine does not allow tracing
  bool killed = false;  ///< ended by the fault `kill`
  int exit_code = -1;   ///< of `body`, when it ran to its end; 128 + n after another signal
  int calls = 0;        ///< calls that change files, before the end
  std::string struck;   ///< the call that the fault hit, by name
};

/// Runs `body` in a child; the fault strikes at call number `at` (from 0) that changes files, before it does
/// anything. half_write halves the size of a write and counts writes only.
Traced run_traced(const std::function<int()>& body, int at, Fault fault);

}  // namespace holdfast::checkpoint::testing

#pragma once
// A child process whose system calls are watched from outside: it can be killed at any one of them that
// changes files, or told that the call failed; or all of them are written down. Nothing in the product knows
// about this.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace holdfast::test {

/// What happens at the chosen call.
enum class Fault { none, kill, io_error, no_space, half_write, read_error };

struct Traced {
  bool traced = false;  ///< false: this machine does not allow tracing
  bool killed = false;  ///< ended by the fault `kill`
  int exit_code = -1;   ///< of `body`, when it ran to its end; 128 + n after another signal
  int calls = 0;        ///< calls that change files, before the end
  std::string struck;   ///< the call that the fault hit, by name
};

/// Runs `body` in a child; the fault strikes at call number `at` (from 0) that changes files, before it does
/// anything. half_write halves the size of a write and counts writes only; read_error counts preads only. The
/// body stays on one thread.
Traced run_traced(const std::function<int()>& body, int at, Fault fault);

/// Runs `body` in a child; call number `at` (from 0) of those that name a path under `folder`, or use a
/// descriptor of one, fails with `error`. The body stays on one thread.
Traced run_failing(const std::filesystem::path& folder, const std::function<int()>& body, int at, int error);

/// A call that succeeded and changed something under a folder, or that made changes durable. Paths are
/// relative to the folder, "" the folder itself.
struct Change {
  enum class What { create, make_folder, write, resize, sync, rename, exchange, remove, mark };
  What what = What::mark;
  std::string path, to = {};  ///< `to`: of rename and exchange
  std::int64_t offset = 0;    ///< of write; the new size of resize
  std::string data = {};      ///< of write; the text of mark
};
/// Writes down what `body` does under `folder`, in order. What it writes to /dev/null becomes marks. Empty
/// where tracing is not allowed. `exit_code` is that of the body.
std::vector<Change> record_changes(const std::filesystem::path& folder, const std::function<int()>& body,
                                   int& exit_code);

}  // namespace holdfast::test

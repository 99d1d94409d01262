#pragma once
// Running other programs, always by argument list, never through a shell.
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// How to start a program. Nothing here is evaluated by a shell.
struct Command {
  std::vector<std::string> argv;
  std::optional<std::vector<std::string>> environment;  ///< "NAME=value"; inherited when absent
  std::filesystem::path folder;                         ///< working folder; inherited when empty
  std::filesystem::path output;  ///< stdout and stderr are appended here; inherited when empty
  bool new_session = false;      ///< setsid(): survives its parent's terminal and can be killed as a group
  bool die_with_parent = false;  ///< SIGKILL when the thread that started it ends
  bool block_sigterm = false;    ///< in the child and in its children
  int input = -1;                ///< becomes stdin; inherited when negative
  bool low_priority = false;     ///< the lowest that there is (19)
};

/// Where a program of this name may be, by the folders of a PATH in their order; an empty one is the working
/// folder. A name with a folder is looked for nowhere else. Pure.
std::vector<std::string> places_in(std::string_view search_path, const std::string& name);

/// Starts the program and returns its pid. Where the environment that it gets has a PATH, it is looked for
/// there. The caller waits for it. Signals are at their defaults in the child and not blocked (but see
/// `block_sigterm`), all descriptors above 2 are closed. An Error when the program cannot be started at all.
pid_t spawn(const Command& command);

struct Finished {
  int status = 0;  ///< exit code, or 128 + signal
  bool timed_out = false;
  std::string out, err;  ///< captured, each at most 64 MiB
};

/// Runs to the end, capturing both streams, at most `limit`; past it the program is killed and `timed_out` is
/// set.
Finished run(const Command& command, std::chrono::milliseconds limit, const std::string& input = {});

/// Exit code, or 128 + signal, of a wait status.
int exit_status(int wait_status);

}  // namespace holdfast

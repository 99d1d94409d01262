#pragma once
// Running other programs, always by argument list, never through a shell.
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast {

/// How to start a program. Nothing here is evaluated by a shell.
struct Command {
  std::vector<std::string> argv;
  std::optional<std::vector<std::string>> environment;  ///< "NAME=value"; inherited when absent
  std::filesystem::path folder;                         ///< working folder; inherited when empty
  std::filesystem::path output;  ///< stdout and stderr are appended here; inherited when empty
  bool new_session = false;      ///< setsid(): survives its parent's terminal and can be killed as a group
  int when_parent_ends = 0;      ///< the signal that it gets when the thread that started it ends; 0: none
  bool block_sigterm = false;    ///< in the child and in its children
  int input = -1;                ///< becomes stdin; inherited when negative
  bool low_priority = false;     ///< the lowest that there is (19)
};

/// Where a program of this name may be, by the folders of a PATH in their order; an empty one is the working
/// folder. A name with a folder is looked for nowhere else. Pure.
std::vector<std::string> places_in(std::string_view search_path, const std::string& name);

/// A process that becomes the program once storage has answered: its folder, its output and the program may
/// lie on a file system that hangs.
struct Launched {
  pid_t pid = 0;
  files::Fd report;  ///< readable once the process has become the program, or has failed to
};
/// Does not wait for storage. Where the environment that the program gets has a PATH, it is looked for there.
/// Signals are at their defaults in the child and not blocked (but see `block_sigterm`); it has no descriptor
/// of this process but 0 to 2, from its first moment on, and the limit of open files that this process has
/// begun with. The caller waits for its end. An Error when no process can be created.
Launched launch(const Command& command);
/// Why a process has not become `program`; nothing: it has, or was ended before. `report`: its own; waits
/// until that is readable.
std::optional<Error> why_not_run(int report, const std::string& program);

/// The same for a program on storage that answers: returns its pid once it runs. An Error when it cannot be
/// started at all.
pid_t spawn(const Command& command);

struct Finished {
  int status = 0;  ///< exit code, or 128 + signal
  bool timed_out = false;
  std::string out, err;  ///< captured, each at most 64 MiB
};

/// Runs to the end, capturing both streams, at most `limit`; past it the program is killed and `timed_out` is
/// set. An Error when it cannot be started at all.
Finished run(const Command& command, std::chrono::milliseconds limit, const std::string& input = {});

/// Exit code, or 128 + signal, of a wait status.
int exit_status(int wait_status);

}  // namespace holdfast

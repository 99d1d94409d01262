#pragma once
// The stacks of a rank, thread by thread, to find out why it hangs: what the kernel tells of each thread, and
// its calls if the process can dump them itself (src/flight/stack_dump.hpp).
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/run_processes.hpp"
#include "src/base/clock.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {

constexpr Millis stacks_limit{2000};

/// One paragraph per thread: name, state, where in the kernel it waits, CPU time during the call, stack.
/// `log`: the file that the process writes its stderr to. For a stopped process, one blocked in the kernel,
/// and one that does not handle the signal, only the kernel's data are given. At most 48 KiB; blocks for up
/// to `limit`, and longer only with a file system that hangs: must not be called in the loop's thread.
std::string stacks_of(pid_t pid, const std::filesystem::path& log, Millis limit = stacks_limit);

/// The same in a thread of its own; `done` is called in the loop's thread. Destroying the handle cancels.
[[nodiscard]] control::Loop::Handle dump_stacks(control::Loop& loop, pid_t pid,
                                                const std::filesystem::path& log,
                                                std::function<void(std::string)> done);

/// How many processes that were killed are still there, and where in the kernel one of them waits: the system
/// call and its file, as far as they can be read. May block as stacks_of() does.
std::string why_left(const std::vector<RunProcess>& left);
/// The same in a thread of its own, as dump_stacks().
[[nodiscard]] control::Loop::Handle look_why_left(control::Loop& loop, std::vector<RunProcess> left,
                                                  std::function<void(std::string)> done);

}  // namespace holdfast::launcher

#pragma once
// What a rank is doing, thread by thread, for people who must find out why it hangs: what the kernel says of
// it, and the calls it is in, if it can say so itself (src/flight/stack_dump.hpp).
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>

#include "src/base/clock.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {

constexpr Millis stacks_limit{2000};

/// One paragraph per thread: name, state, where in the kernel it waits, CPU time while we looked, calls.
/// `log`: where the process writes its stderr. A stopped process, one deep in the kernel, and one that does
/// not know the signal are not asked, and the kernel speaks for them. At most 48 KiB; blocks for up to
/// `limit`, and longer only with a file system that hangs: not for the loop's thread.
std::string stacks_of(pid_t pid, const std::filesystem::path& log, Millis limit = stacks_limit);

/// The same beside the loop; `done` is called in the loop's thread. Destroying the handle cancels.
[[nodiscard]] control::Loop::Handle dump_stacks(control::Loop& loop, pid_t pid,
                                                const std::filesystem::path& log,
                                                std::function<void(std::string)> done);

}  // namespace holdfast::launcher

#pragma once
// Stack dumps of a hung rank, written by the rank itself: a thread that receives the signal writes its stack
// and continues. The agent signals one thread after the other (tgkill) and reads the rank's log.
#include <string_view>

namespace holdfast::flight {

/// SIGRTMIN + 5: not used by glibc, Open MPI, UCX or CUDA, and not sent by hand. It ends a program that does
/// not handle it.
int stack_signal();

/// Installs the handler: a thread that receives the signal writes its stack to stderr between these two
/// lines, each followed by the thread's number: calls as backtrace_symbols_fd() writes them, innermost first.
/// The handler uses only what glibc allows in practice: it allocates no memory and takes no lock of ours.
/// Call it once, before other threads start.
void dump_stacks_on_signal();
inline constexpr std::string_view stack_begins = "--- stack of thread ", stack_ends = "--- end of thread ";

}  // namespace holdfast::flight

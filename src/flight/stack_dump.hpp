#pragma once
// The stacks of a rank that is hung, written by itself: a thread that gets the signal says where it is and
// goes on. Who asks sends it to one thread after the other (tgkill) and reads the rank's log.
#include <string_view>

namespace holdfast::flight {

/// SIGRTMIN + 5: free in glibc, Open MPI, UCX and CUDA, and not one that people send by hand. A program that
/// does not catch it would be ended by it.
int stack_signal();

/// From now on a thread that gets the signal writes its stack to stderr, between these two lines, each
/// followed by the thread's number: calls as backtrace_symbols_fd() writes them, innermost first. Only what
/// glibc allows in a handler in practice: no memory is asked for, no lock of ours is taken. Once, before
/// other threads start.
void dump_stacks_on_signal();
inline constexpr std::string_view stack_begins = "--- stack of thread ", stack_ends = "--- end of thread ";

}  // namespace holdfast::flight

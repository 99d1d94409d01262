#pragma once
// File descriptors: which of them a child process has, and how many a process may open.
#include <sys/resource.h>

namespace holdfast {

/// For a child between fork() and exec(), or one that never calls exec(): closes every descriptor that it has
/// inherited but 0, 1, 2 and `kept`. A child may wait for storage for minutes, and must not hold a port or a
/// lock of its parent meanwhile. Async-signal-safe.
void close_inherited(int kept);
/// The same for a kernel without close_range() (before 5.9).
void close_inherited_by_list(int kept);

/// Raises the soft limit of open files to the hard one, for a process with a connection to every node. The
/// programs that it starts get the limit back that it had itself: a program that calls select() breaks above
/// 1024.
void raise_descriptor_limit();
/// The limit that this process has begun with.
const rlimit& first_descriptor_limit();

}  // namespace holdfast

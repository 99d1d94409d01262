#pragma once
// A process that reads what others have written, by a library whose faults may be used to run their code, and
// that may do nothing but read and say what it has found.
#include <optional>
#include <string>

namespace holdfast {

/// For a child with one thread, after fork(): from here on this process can open files for reading, read,
/// write to `pipe`, take memory that is not executable, and end. All other calls of the kernel fail with
/// EPERM: to open a file for writing, to change or remove one, to start a program or a process, to signal
/// another, to use a network. It lasts until the process ends. Returns why there is no such limit here: the
/// system does not offer it (seccomp), or a sanitizer in this program needs more.
[[nodiscard]] std::optional<std::string> enter_reading_sandbox(int pipe);

}  // namespace holdfast

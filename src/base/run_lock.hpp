#pragma once
// The lock of a run directory, for what SLURM does not know: a run without SLURM holds it (flock of
// bare.lock) for as long as it lives, and so does what must not meet such a run. The kernel lets go of it
// when the process ends, however it ends.
#include <optional>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast {

/// Locks the directory for as long as the result lives, and makes the file where it is missing; nothing when
/// another process holds the lock for 200 ms (one that looks holds it for an instant). Throws Error (runtime)
/// where it cannot be locked, such as on a file system without locks.
std::optional<files::Fd> lock_run(const RunDir& run);

/// Another process holds the lock. On a file system without locks none does. Throws Error (runtime) where
/// that cannot be told.
bool is_locked(const RunDir& run);

}  // namespace holdfast

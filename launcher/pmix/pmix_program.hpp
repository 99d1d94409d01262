#pragma once
// What an agent knows of holdfast-pmix besides its messages.
#include <signal.h>

namespace holdfast::launcher {

inline constexpr const char* pmix_program = "holdfast-pmix";
/// Ends it. Not SIGTERM, which SLURM may send to every process of a step, and which ranks may answer by
/// saving: they need their PMIx server until they have.
inline int pmix_end_signal() { return SIGRTMIN; }

}  // namespace holdfast::launcher

#pragma once
#include <sys/types.h>

#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// The serving agent of a node, until the leader ends it; returns its exit code. SIGTERM and SIGINT ask the
/// leader to drain and stop the run; a second signal, or the end of the drain's time, ends this agent alone
/// (128 + signal). Throws Error when the run directory is unusable, or another agent of this run runs on the
/// node. `guardian`: its pid; 0: there is none.
int serve(const RunDir& run, const Scratch& scratch, pid_t guardian);

}  // namespace holdfast::launcher

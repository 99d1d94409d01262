#pragma once
// `holdfast agent` is two processes. The guardian is the one that the step started: it starts the serving
// agent, and starts it again when it dies. Ranks and mpirun that a dead agent leaves behind become the
// guardian's children, so losing the agent (and the leader that may live in it) never ends healthy training.
#include <signal.h>

#include <string>

#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// What the guardian passes on in SIGTERM's place when SLURM has sent it. An agent that gets SIGTERM as well
/// is on a node where SLURM signals every process of a step (proctrack/linuxproc): then the ranks have it,
/// too. With cgroups SLURM signals the guardian alone.
inline int slurms_sigterm() { return SIGRTMIN; }

/// Returns the serving agent's exit code once it has left on purpose. A dead one (ended by a signal) is
/// replaced, at most ten times a minute.
int guard(const RunDir& run, const std::string& node);
/// To be called by the serving agent: it must not outlive its guardian.
void die_with_guardian();

}  // namespace holdfast::launcher

#pragma once
// `holdfast agent` is two processes. SLURM's step starts the guardian, which starts the serving agent, and
// starts it again when it dies. Ranks and their PMIx server, which a dead agent leaves behind, become
// children of the guardian, so the loss of the agent (and of the leader in it) never ends healthy training.
#include <signal.h>

#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// The signal that the guardian passes on instead of a SIGTERM from SLURM. An agent that gets SIGTERM as well
/// is on a node where SLURM signals every process of a step (proctrack/linuxproc): then the ranks got it,
/// too. With cgroups SLURM signals the guardian alone.
inline int slurms_sigterm() { return SIGRTMIN; }

/// Returns the serving agent's exit code once it has ended on purpose. A dead one (ended by a signal) is
/// replaced, at most ten times a minute; so is one whose loop has stood still for stuck_agent_s. An agent
/// does not outlive its guardian.
int guard(const RunDir& run, const Scratch& scratch);
/// Called by the serving agent from its loop, more often than once a second from the first time on; `over`:
/// no more, because it ends. Liveness is told by a signal with a value.
void tell_guardian(pid_t guardian, bool over = false);

}  // namespace holdfast::launcher

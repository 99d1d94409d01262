#pragma once
// `holdfast agent` is two processes. The guardian is the one that the step started: it starts the serving
// agent, and starts it again when it dies. Ranks and mpirun that a dead agent leaves behind become the
// guardian's children, so losing the agent (and the leader that may live in it) never ends healthy training.
#include <string>

#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Returns the serving agent's exit code once it has left on purpose. A dead one (ended by a signal) is
/// replaced, at most ten times a minute.
int guard(const RunDir& run, const std::string& node);
/// To be called by the serving agent: it must not outlive its guardian.
void die_with_guardian();

}  // namespace holdfast::launcher

#pragma once
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Removes the logs of attempts of which `kept` or more have begun since, `attempt` being the last; those of
/// the first one stay. 0: all are kept. What cannot be removed is tried again when the next attempt begins.
void remove_old_logs(const RunDir& run, int attempt, int kept);

}  // namespace holdfast::launcher

#pragma once
// Reads the state of a run from its directory, while others write it.
#include "launcher/drill/fault_schedule.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// The present state; of a run that has not begun it is empty.
RunView read_run_view(const RunDir& run);
/// metrics.jsonl: steps 1, 2, 3, ... `steps`, one line each, and nothing after them.
bool has_every_step_once(const RunDir& run, std::int64_t steps);

}  // namespace holdfast::launcher

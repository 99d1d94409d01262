#pragma once
// A look at a run from outside: its directory, read while others write it.
#include "launcher/drill/course.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// What is there now; a run that has not begun looks empty.
View look_at(const RunDir& run);
/// metrics.jsonl: steps 1, 2, 3, ... `steps`, one line each, and nothing after them.
bool has_every_step_once(const RunDir& run, std::int64_t steps);

}  // namespace holdfast::launcher

#pragma once
// What a run directory says of its run.
#include "launcher/supervise/status_view.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Throws Error when it cannot be read.
StatusFacts facts_of(const RunDir& run);

}  // namespace holdfast::launcher

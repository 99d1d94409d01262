#pragma once
// Checks that cannot hang whoever asks: each runs in a process of its own, all at once, and is given up at a
// deadline.
#include <vector>

#include "launcher/health/look.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// The findings in the order of the checks. A check that does not answer within `limit` is critical under its
/// own name (a hung mount, a dead driver), one that ends by a signal too; one that throws is unknown. The
/// calling process must have no other threads.
std::vector<Finding> run_guarded(const std::vector<Check>& checks, Millis limit);

}  // namespace holdfast::launcher

#pragma once
// Runs checks so that they cannot block the caller: each in a process of its own, all at once, with a
// deadline.
#include <vector>

#include "launcher/health/check_input.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// The findings in the order of the checks. A check that does not end within `limit` gives a critical
/// finding (a hung mount, a dead driver), and so does one that ends by a signal; one that throws is unknown.
/// The calling process must have no other threads.
std::vector<Finding> run_guarded(const std::vector<Check>& checks, Millis limit);

}  // namespace holdfast::launcher

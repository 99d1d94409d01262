#pragma once
// All checks of one node, and what is printed of them.
#include "launcher/health/look.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// What would be looked at, in the order of the report.
std::vector<Check> checks_of(const Roots& roots, const Expected& expected);
/// Runs them all at once; returns within `limit` and a fraction of a second, whatever hangs.
std::vector<Finding> examine(const Roots& roots, const Expected& expected, Millis limit);

/// `check  fitness  what (advice)`, one finding a line, and the fitness of the node at the end.
std::string report_text(const std::vector<Finding>& findings);
/// One object: schema_version, node, fitness, why, findings.
nlohmann::json report_json(const std::string& node, const std::vector<Finding>& findings);

}  // namespace holdfast::launcher

#pragma once
// All checks of one node, and their report.
#include "launcher/health/check_input.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// The checks, in the order of the report.
std::vector<Check> checks_of(const Roots& roots, const Expected& expected);
/// Runs all of them at once; returns within `limit` and a fraction of a second, even if a check hangs.
std::vector<Finding> examine(const Roots& roots, const Expected& expected, Millis limit);

/// `check  fitness  text (advice)`, one finding per line, and the fitness of the node at the end.
std::string report_text(const std::vector<Finding>& findings);
/// One object: schema_version, node, fitness, why, findings.
nlohmann::json report_json(const std::string& node, const std::vector<Finding>& findings);

}  // namespace holdfast::launcher

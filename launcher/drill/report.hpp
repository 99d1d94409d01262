#pragma once
// The report of a drill, for people and for programs. Pure.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "launcher/drill/runner.hpp"

namespace holdfast::launcher {

/// schema_version 1: drill, seed, cases (each with its faults, their targets, moments and time times),
/// and per fault the p50 and p99 of the time to the next step.
nlohmann::json report_json(const DrillReport& report);
/// Markdown: a table of cases, one of times by fault, and every difference.
std::string report_text(const DrillReport& report);

/// The smallest value that at least the `part` of all are not above (nearest rank). `values` is not empty.
double percentile(std::vector<double> values, double part);

}  // namespace holdfast::launcher

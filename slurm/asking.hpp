#pragma once
// For questions about the site: a tool is run, and its reply taken apart.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/subprocess.hpp"

namespace holdfast::slurm {

/// Runs a tool to its end. Throws Error: runtime when it cannot be started, transient when it takes longer.
Finished ask(std::vector<std::string> argv, std::chrono::milliseconds limit);
/// What it prints; throws Error also when it fails.
std::string answer(const std::vector<std::string>& argv, std::chrono::milliseconds limit);

/// The parts of a text between these characters; at least one.
std::vector<std::string_view> split(std::string_view text, char at);
/// The value of "Name=value" among words.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name);
/// A time of a reply, which tool_environment() has in Unix seconds; none: "Unknown", "N/A", or it is not set.
std::optional<double> seconds_in(std::string_view text);
/// Of a hostlist; none when it cannot be read.
std::vector<std::string> names_in(std::string_view hostlist);

}  // namespace holdfast::slurm

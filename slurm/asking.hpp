#pragma once
// A tool of SLURM is run, and its reply taken apart.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/subprocess.hpp"

namespace holdfast::slurm {

struct Asking {
  /// Absent: tool_environment().
  std::optional<std::vector<std::string>> environment = std::nullopt;
  /// For a requeue and calls after it: SLURM ends the processes of the job, and the tool may be one.
  bool block_sigterm = false;
};
/// Runs a tool to its end. Throws Error: runtime when it cannot be started, transient when it takes longer.
Finished ask(std::vector<std::string> argv, std::chrono::milliseconds limit, Asking how = {});
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

#pragma once
// The verbs of `holdfast`: one table, one file for each. A new verb is a line in verbs.cpp.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// Adds the verb to `app`; when it was typed, parsing runs it, and it leaves its exit code in `exit_code` or
/// throws Error.
using AddVerb = void (*)(CLI::App& app, int& exit_code);

struct Verb {
  std::string name;
  AddVerb add;
};
const std::vector<Verb>& verbs();

/// Runs `holdfast VERB ...`; the exit code. Throws Error, unknown verbs included.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace holdfast::launcher

#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast plan JOB.toml [--json] [--ranks] [-w HOSTLIST]`
void add_plan(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

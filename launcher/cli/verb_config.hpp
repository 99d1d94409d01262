#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast config show JOB.toml [--origin] [--json]`, `holdfast config keys`
void add_config(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

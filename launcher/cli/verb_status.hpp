#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast status RUN_DIR [--json]`
void add_status(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

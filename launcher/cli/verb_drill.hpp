#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast drill DRILL.toml [JOB.toml]`: inject faults, and compare the results with those of an
/// undisturbed run.
void add_drill(CLI::App& app, int& exit_code);
/// `holdfast inject RUN_DIR NODE FAULT`: injects one fault through the agent of a node; prints the moment in
/// Unix seconds.
void add_inject(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

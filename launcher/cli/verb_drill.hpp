#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast drill CAMPAIGN.toml [JOB.toml]`: break things on purpose, and prove that nothing came of it.
void add_drill(CLI::App& app, int& exit_code);
/// `holdfast inject RUN_DIR NODE FAULT`: one fault through the agent of a node; prints the moment in Unix
/// seconds.
void add_inject(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

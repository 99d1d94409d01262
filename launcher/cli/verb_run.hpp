#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast run RUN_DIR`: inside an allocation, keeps one agent on every node until the run is over.
void add_run(CLI::App& app, int& exit_code);
/// `holdfast agent RUN_DIR --node NAME`: the daemon of a node (started by `run`).
void add_agent(CLI::App& app, int& exit_code);
/// `holdfast spawn HOST COMMAND...` and `holdfast start-rank`: called by mpirun; not in the help.
void add_spawn(CLI::App& app, int& exit_code);
void add_start_rank(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

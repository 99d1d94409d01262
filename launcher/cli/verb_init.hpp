#pragma once
// `holdfast init`: a cluster file from what SLURM and this node tell.
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_init(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

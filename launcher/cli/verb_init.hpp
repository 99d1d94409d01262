#pragma once
// `holdfast init`: writes a cluster file from what SLURM and this node report.
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_init(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

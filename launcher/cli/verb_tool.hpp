#pragma once
// Verbs that run holdfast-tool, because they need libraries that `holdfast` must not link.
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_ckpt(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

#pragma once
// `holdfast ctl`: orders to a run that is under way.
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_ctl(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

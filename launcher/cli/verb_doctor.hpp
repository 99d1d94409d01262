#pragma once
// `holdfast doctor`: is this node fit to train, are all nodes of an allocation, and is the network between
// them?
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_doctor(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

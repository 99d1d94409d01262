#pragma once
// `holdfast doctor`: checks whether this node, all nodes of an allocation or the network between them are fit
// to train.
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

void add_doctor(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher

#pragma once
// The verbs of holdfast-tool. Each adds its subcommands; their callbacks set `exit_code` and may throw Error.
#include <CLI/CLI.hpp>

namespace holdfast::tool {

void add_data(CLI::App& app, int& exit_code);         ///< data prepare, data show
void add_ckpt(CLI::App& app, int& exit_code);         ///< ckpt ls, show, verify, diff, export, import, ...
void add_model_verbs(CLI::App& app, int& exit_code);  ///< generate, eval

}  // namespace holdfast::tool

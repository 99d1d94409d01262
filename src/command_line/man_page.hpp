#pragma once
// A manual page for man(1) from the verbs and options of a CLI::App.
#include <CLI/CLI.hpp>
#include <string>

namespace holdfast::command_line {

/// holdfast(1), with a part for each verb.
std::string man_page(const CLI::App& app, const std::string& version);
/// The parts of a program's verbs alone, to stand behind those of another one.
std::string man_verbs(const CLI::App& app);

}  // namespace holdfast::command_line

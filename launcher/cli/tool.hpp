#pragma once
// holdfast-tool does the verbs that need libraries which `holdfast` must not link.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// Becomes `holdfast-tool WORD...`; every word arrives as it was typed. Throws Error when it is not there.
[[noreturn]] void become_tool(const std::vector<std::string>& words);
/// Is `name` a verb that it does?
bool is_tool_verb(const CLI::App& app, const std::string& name);

}  // namespace holdfast::launcher

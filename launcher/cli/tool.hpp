#pragma once
// holdfast-tool does the verbs that need libraries which `holdfast` must not link.
#include <string>
#include <vector>

namespace holdfast::launcher {

/// Becomes `holdfast-tool WORD...`; every word arrives as it was typed. Throws Error when it is not there.
[[noreturn]] void become_tool(const std::vector<std::string>& words);

}  // namespace holdfast::launcher

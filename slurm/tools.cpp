#include "slurm/tools.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "src/base/env.hpp"

namespace holdfast::slurm {
namespace {

constexpr const char* tools_variable = "HOLDFAST_SLURM_TOOLS";  // their folder

bool has_tools(const std::string& folder) {
  constexpr std::array tools{"squeue", "scontrol", "srun"};
  return std::ranges::all_of(
      tools, [&](const char* tool) { return ::access((folder + "/" + tool).c_str(), X_OK) == 0; });
}

}  // namespace

bool find_tools() {
  std::istringstream path(env::get_or("PATH", ""));
  std::string folder;
  while (std::getline(path, folder, ':'))
    if (folder.starts_with('/') && has_tools(folder)) {
      env::set(tools_variable, folder);
      return true;
    }
  env::set(tools_variable, "");  // one that was inherited is of another node
  return false;
}

std::string tool_path(const std::string& name) {
  const std::string folder = env::get_or(tools_variable, "");
  return folder.empty() ? name : folder + "/" + name;
}

}  // namespace holdfast::slurm

#pragma once
// Where SLURM's tools are. In PATH, folders on shared storage may come before theirs: a bundle's, a user's
// own. While that storage hangs, whoever starts a tool by its name waits for it.
#include <array>
#include <string>
#include <string_view>

namespace holdfast::slurm {

/// Tools that start programs in jobs or steps of their own.
inline constexpr std::array<std::string_view, 3> tools_that_launch = {"srun", "sbatch", "salloc"};

/// Looks for the tools in PATH, once: this process and those that it starts then run them from where they
/// are. To be called before storage may hang. Where they are not in one folder, PATH is searched each time:
/// then it returns false.
bool find_tools();
/// Path of a tool; its name, where find_tools() has not found it.
std::string tool_path(const std::string& name);

}  // namespace holdfast::slurm

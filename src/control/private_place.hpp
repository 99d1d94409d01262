#pragma once
// What a run keeps where other users of a node can make names, too (/dev/shm, a disk of the node), lies in
// folders of its own. Their names follow from the run's secret, so that nobody can take them before the run
// does, and from the path of its directory, as a copy of that is a run of its own. Every process that has the
// secret finds them again; who has none (ranks) is told the path.
//
// Once a folder is there, its name can be read, and another user may take it as soon as it is gone, for the
// next job of the run. So the run has many names for a folder: of those that are this user's, the first is
// the folder; if there is none, the first that is free becomes it.
#include <filesystem>
#include <optional>
#include <string>

#include "src/base/run_dir.hpp"
#include "src/control/secret.hpp"

namespace holdfast::control {

/// A folder of a run: its names are `parent`/`stem`, with 24 hex digits behind.
struct PrivatePlace {
  RunDir run;
  std::filesystem::path parent;
  std::string stem;
};

/// How names in node_memory begin that a user's runs have for the scratch folders of agents.
std::string scratch_stem();
/// The scratch folder of a run's agents, in the memory of a node. Its path has no spaces.
PrivatePlace scratch_place(const RunDir& run);
/// The local level of a run. `local`: checkpoint.local, not "none"; "auto": the memory of the node.
PrivatePlace local_level_place(const RunDir& run, const std::filesystem::path& local);
/// Is this what a folder of local_level_place() may be called?
bool is_called_local_level(const std::filesystem::path& folder);

/// Nothing: no name of the place is a folder of this user's alone (files::is_private_folder).
std::optional<std::filesystem::path> find_private(const PrivatePlace& place, const Key& secret);
/// Finds it, or makes it (0700). Throws Error (runtime): the parent cannot be written to, or another user has
/// taken all the names, which says whose they are.
std::filesystem::path make_private(const PrivatePlace& place, const Key& secret);

}  // namespace holdfast::control

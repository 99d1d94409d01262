#pragma once
// Where the local level of a node lies, and this rank's snapshots in it.
#include <filesystem>
#include <optional>

#include "checkpoint/index/state_folder.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/local/local_identity.hpp"

namespace holdfast::train {

/// The folder that holds the snapshots of this run on this node: that of the agent; without one it is made
/// here, by the secret in the run directory. Nothing: there is no local level. Throws Error.
std::optional<std::filesystem::path> local_folder_of(const Setup& setup);
/// Removes that folder, for a run that is over. Never throws.
void remove_local_folder(const Setup& setup) noexcept;

/// This rank's own snapshots. Collective only in that a first attempt has to find no rank training: nothing
/// that was left behind in the folder is taken for a state of a run that has just begun, or of one that
/// begins elsewhere (run.resume).
checkpoint::StateFolder open_state_folder(const Setup& setup, const LocalRun& run,
                                          const std::filesystem::path& folder);

}  // namespace holdfast::train

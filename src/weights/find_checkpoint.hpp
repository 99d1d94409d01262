#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/index/lease.hpp"

namespace holdfast::weights {

/// Throws Error (usage) where there is nothing at `path`. `asked_by` is for messages, here and below.
void require_there(const std::filesystem::path& path, const std::string& asked_by);

/// The checkpoint that `path` is, or the newest sound one of the run or folder of checkpoints that it is;
/// nothing when it is none of these. Its run, if that lives, leaves it alone while the lease is held. Throws
/// Error: usage for a run without any, runtime when none is sound.
std::optional<checkpoint::LeasedCheckpoint> find_checkpoint(const std::filesystem::path& path,
                                                            const std::string& asked_by);
/// The same without a lease, to look at its manifest.
std::optional<checkpoint::Found> look_for_checkpoint(const std::filesystem::path& path,
                                                     const std::string& asked_by);

}  // namespace holdfast::weights

#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/index/lease.hpp"

namespace holdfast::weights {

/// The checkpoint that `path` is, or the newest sound one of the run or folder of checkpoints that it is;
/// nothing when it is none of these. Its run, if that lives, leaves it alone while the lease is held. Throws
/// Error: usage for a run without any, runtime when none is sound. `asked_by` is for messages.
std::optional<checkpoint::LeasedCheckpoint> find_checkpoint(const std::filesystem::path& path,
                                                            const std::string& asked_by);

}  // namespace holdfast::weights

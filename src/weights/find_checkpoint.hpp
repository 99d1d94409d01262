#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace holdfast::weights {

/// The checkpoint that `path` is, or the newest sound one of the run or folder of checkpoints that it is;
/// nothing when it is none of these. Throws Error: usage for a run without any, runtime when none is sound.
/// `asked_by` is for messages.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& path,
                                                     const std::string& asked_by);

}  // namespace holdfast::weights

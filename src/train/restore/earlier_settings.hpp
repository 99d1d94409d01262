#pragma once
// With which settings a checkpoint was made. Its manifest does not say it; the run directory in which it lies
// keeps them.
#include <filesystem>
#include <optional>

#include "src/train/common/setup.hpp"

namespace holdfast::train {

/// Of the job of `term` in whose run directory `checkpoint` lies; in bare mode of the start before this one.
/// Nothing: they are not kept there, or this version cannot read them.
std::optional<config::RunConfig> settings_of_checkpoint(const std::filesystem::path& checkpoint, int term,
                                                        const Setup& setup);

}  // namespace holdfast::train

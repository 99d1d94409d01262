#pragma once
// Which checkpoint of a run has the best held-out loss: a mark beside it, as a pin, that its trainer sets
// before the checkpoint is committed. So there may be a mark without its checkpoint, and more than one: the
// newest one counts that has it.
#include <cstdint>
#include <filesystem>
#include <optional>

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

struct Best {
  std::int64_t step = 0;
  std::optional<double> held_out_loss;  ///< nothing: the mark cannot be read
};

/// Nothing: no checkpoint that is there has a mark. Throws as entries_of().
std::optional<Best> best_of(const fs::path& checkpoints);

/// Before the checkpoint of `step` is committed. Throws Error.
void mark_best(const fs::path& checkpoints, std::int64_t step, double held_out_loss);
/// Removes the marks of older checkpoints than the best one. Throws Error.
void unmark_older(const fs::path& checkpoints);
/// A run that goes on from `step` comes to later ones again: removes their marks. Throws Error.
void unmark_later(const fs::path& checkpoints, std::int64_t step);

}  // namespace holdfast::checkpoint

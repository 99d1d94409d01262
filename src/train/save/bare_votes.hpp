#pragma once
// Votes where nobody leads (bare mode): each rank leaves a file in the temporary folder of the checkpoint,
// and rank 0 collects them. No collective: a save waits for no step, and a rank that died costs the
// checkpoint.
#include <atomic>
#include <filesystem>
#include <string>

#include "checkpoint/index/commit.hpp"
#include "src/base/clock.hpp"

namespace holdfast::train {

/// Appears as a whole or not at all. Makes the folder when it is missing (nothing of the rank's could be
/// written). Throws Error.
void cast_vote(const std::filesystem::path& temporary, int rank, bool ok, const std::string& payload);

/// Adds the votes of ranks 1 to world-1 to `commit` as they appear, and removes their files; until all are
/// there, one says no, `deadline` has passed, or `ending`. What has not voted is in commit.missing().
void collect_votes(const std::filesystem::path& temporary, checkpoint::Commit& commit,
                   const Deadline& deadline, const std::atomic<bool>& ending);

}  // namespace holdfast::train

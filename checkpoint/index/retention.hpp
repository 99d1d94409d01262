#pragma once
// Which checkpoints stay: the newest ones, the first of every so many hours, those that a person pinned, and
// those that somebody reads (lease.hpp).
// The decision is pure; retain() carries it out. What cannot be read now is no reason to remove anything.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/catalog.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

struct Retention {
  int keep = 1;          ///< newest sound checkpoints that stay; at least one always does
  double archive_h = 0;  ///< the first sound checkpoint of every so many hours stays too; 0: none
};

/// A committed checkpoint as retention sees it.
struct Candidate {
  std::int64_t step = 0;
  Condition::Kind condition = Condition::Kind::unknown;
  bool pinned = false;  ///< step-N.pin lies beside it
  double written = 0;   ///< Unix seconds of its manifest; only of sound ones
  bool leased = false;  ///< somebody reads it
  bool sound() const { return condition == Condition::Kind::sound; }
};

/// Steps that may go, newest first. What stays: the newest `keep` sound ones and everything newer than the
/// oldest of them (a damaged one there is evidence); of the older sound ones, from the oldest on, each that
/// was written at least `archive_h` after the archive before it; pinned and leased ones; and all of which
/// nothing is known. While fewer than `keep` are sound, everything stays. Deciding again over what is left
/// removes nothing more.
std::vector<std::int64_t> superfluous(std::span<const Candidate> newest_first, const Retention& retention);

/// Looks at every committed checkpoint, newest first. Throws Unreadable when the folder cannot be listed.
std::vector<Candidate> candidates(const fs::path& checkpoints);

/// Names of what was put aside when a step was written again, and is not needed any more: there is a sound
/// checkpoint of a later step. What cannot be read now stays.
std::vector<std::string> outlived(const fs::path& checkpoints, std::span<const Candidate> newest_first);

/// Renames what may go to trash, syncs the folder, and removes it. Returns the steps removed, newest first.
/// `holdfast ckpt prune`, when no run is alive.
std::vector<std::int64_t> retain(const fs::path& checkpoints, const Retention& retention);

/// What the one committer of a run does after the commit outcome of `step`: retain(), and a sweep of dead
/// generations. It may take long, and may fail (Error): the next one does what was left.
std::vector<std::int64_t> tidy(const fs::path& checkpoints, const Retention& retention, Generation alive,
                               std::int64_t step);

/// Retention never takes a pinned checkpoint. False when it already is pinned. Throws Error (usage) when
/// there is no such step.
bool pin(const fs::path& checkpoints, std::int64_t step);
/// False when it was not pinned.
bool unpin(const fs::path& checkpoints, std::int64_t step);

}  // namespace holdfast::checkpoint

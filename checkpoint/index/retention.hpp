#pragma once
// Which checkpoints stay: the newest ones, the first of every so many hours, those that a person pinned, and
// those that somebody reads (lease.hpp).
// The decision is pure; retain() carries it out. What cannot be read now is no reason to remove anything.
//
// A commit may not take longer because there are many archives: whole manifests and the sizes of all files
// are looked at only of what a removal rests on, the newest sound ones and what is to go. Of what lies
// between, the record of its commit says enough.
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
  /// The same as `keep` for checkpoints of other programs' files, which go with them; 0: all stay.
  int keep_files = 0;
  /// Folders: of those of other programs that lie elsewhere, only the checkpoint goes, and their files stay.
  /// A manifest may say anything, and whoever wrote it may have given the run to somebody else.
  std::vector<fs::path> files_in = {};
};

/// A committed checkpoint as retention sees it.
struct Candidate {
  std::int64_t step = 0;
  Condition::Kind condition = Condition::Kind::unknown;
  bool pinned = false;   ///< step-N.pin lies beside it, or it is the best one
  double committed = 0;  ///< Unix seconds; only of sound ones
  bool leased = false;   ///< somebody reads it
  bool files = false;    ///< it consists of files that another program has written
  bool sound() const { return condition == Condition::Kind::sound; }
};

/// Steps that may go, newest first. What stays: the newest `keep` sound ones and everything newer than the
/// oldest of them (a damaged one there is evidence); of the older sound ones, from the oldest on, each that
/// was committed at least `archive_h` after the archive before it; pinned and leased ones; and all of which
/// nothing is known. While fewer than `keep` are sound, everything stays. Deciding again over what is left
/// removes nothing more.
std::vector<std::int64_t> superfluous(std::span<const Candidate> newest_first, const Retention& retention);

/// Every committed checkpoint, newest first. Those behind the newest `keep` sound ones count as sound when
/// their commit record fits and the manifest has the size that it names; without a record (formats 1 to 4),
/// and where it is damaged, the manifest is read, and its modification time counts. Throws Unreadable when
/// the folder cannot be listed.
std::vector<Candidate> candidates(const fs::path& checkpoints, int keep);

/// What retain() removes: what is superfluous among holdfast-train's and among other programs', newest first,
/// but for those that turn out to be unknown when they are looked at in full.
std::vector<std::int64_t> removable(const fs::path& checkpoints, const Retention& retention,
                                    std::span<const Candidate> newest_first);

/// Names of what was put aside when a step was written again, and is not needed any more: there is a sound
/// checkpoint of a later step. What cannot be read now stays.
std::vector<std::string> outlived(const fs::path& checkpoints, std::span<const Candidate> newest_first);

/// Renames what may go to trash, syncs the folder, and removes it; with a checkpoint of another program that
/// was committed here those files that its manifest lists and no other one does, and its own folders that
/// are empty then: where these are below `files_in`, and each is this user's and has its size. While one that
/// stays cannot be read, or is damaged, none of these goes. Returns the steps removed, newest first.
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

#pragma once
// The end of a save: collect the votes, prove that they make one whole checkpoint, and rename it into place.
// Run by the leader (rank 0 in bare mode). No HDF5, no tensor data: the votes carry what the manifest needs.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/index/vote.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

struct Committed {
  fs::path path;       ///< step-N: fsynced up to its parent; empty: a program's files that it has not named
  std::string note;    ///< for the event log: what was unusual (an older step-N was replaced, ...), or ""
  bool files = false;  ///< of another program
};

class Commit {
 public:
  /// `world` writers will vote. `generation` is that of the ranks (the term under which their attempt was
  /// *started*), even when a later leader commits for them. Creates nothing.
  Commit(fs::path checkpoints, std::int64_t step, Generation generation, int world);

  /// A rank's vote as it came over the wire. Never throws: a malformed or contradicting payload is a "no"
  /// with its reason. A rank that votes twice with the same payload is counted once.
  void add(int rank, bool ok, const std::string& payload);
  bool complete() const { return answered_ == world_; }  ///< every rank has answered, yes or no
  bool failed() const { return !why_.empty(); }    ///< some rank said no, or the votes do not fit together
  const std::string& why() const { return why_; }  ///< "rank 3: cannot write ... (No space left on device)"
  std::vector<int> missing() const;                ///< ranks that have not answered
  std::int64_t step() const { return step_; }

  /// Manifest, fsync, rename, fsync of the parent. When it returns, the checkpoint is durable, and nothing
  /// was removed: that is tidy()'s (retention.hpp), after the commit outcome. Throws Error when it is not
  /// durable (then drop() it). Needs complete() and not failed(). A step-N that is already there is put
  /// aside; a sound one of this or a higher generation counts as this checkpoint, and the temporary folder
  /// goes (so a second leader may commit again what the first one had). Of a program's own files a manifest
  /// is written where each rank that has some has named them; else they are counted, and nothing is written.
  Committed commit();
  /// Removes the temporary folder. Never throws. Best called when every rank has answered or is known dead.
  void drop() noexcept;

 private:
  struct Answer {
    std::string payload_hash;
    std::optional<Vote> vote;        ///< nothing: a "no", or a payload that could not be used
    std::optional<FilesVote> files;  ///< in place of it: of a program that writes its own checkpoints
  };
  void take(int rank, Vote vote, Answer& answer);
  Manifest manifest() const;
  bool is_there_already(Committed& committed);
  void put(const std::string& manifest, const std::string& record, Committed& committed);
  Committed commit_files();
  bool all_are_named(const FilesVote& sum, std::string& note) const;
  FilesManifest files_manifest() const;
  std::optional<FilesVote> files() const;

  fs::path checkpoints_;
  std::int64_t step_;
  Generation generation_;
  int world_;
  int answered_ = 0;
  std::string why_;
  std::vector<std::optional<Answer>> answers_;
};

}  // namespace holdfast::checkpoint

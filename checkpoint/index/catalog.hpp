#pragma once
// Every name in a checkpoints folder, printed and parsed in one place; which checkpoints there are; what is
// garbage. What else may go: retention.hpp.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/files_manifest.hpp"
#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// A name in the checkpoints folder.
struct Name {
  enum class Kind { committed, temporary, replaced, trash, pin, best, lease, other };
  Kind kind = Kind::other;
  std::int64_t step = 0;
  Generation generation;    ///< of a temporary folder
  int serial = 0;           ///< of a replaced one and of a trash folder
  std::uint64_t lease = 0;  ///< of a lease: drawn by its holder
  bool operator==(const Name&) const = default;
};

/// "step-00000100", "step-00000100.tmp-3-7", "step-00000100.replaced-1", ".trash-00000100-1",
/// "step-00000100.pin", "step-00000100.best", "step-00000100.lease-0123456789abcdef"; everything else is
/// `other`, and ours only if print(parse(x)) == x.
Name parse_name(std::string_view name);
std::string print_name(const Name& name);
fs::path committed_path(const fs::path& checkpoints, std::int64_t step);
fs::path temporary_path(const fs::path& checkpoints, std::int64_t step, Generation generation);
fs::path pin_path(const fs::path& checkpoints, std::int64_t step);
fs::path best_path(const fs::path& checkpoints, std::int64_t step);

/// Inside a checkpoint.
std::string shard_file_name(int rank);  ///< "shard-00007.h5"
inline constexpr const char* manifest_file_name = "manifest.json";
inline constexpr const char* index_file_name = "index.h5";

/// Names of all that lies in a folder of checkpoints, sorted; empty when the folder does not exist. Throws
/// Unreadable when it cannot be listed: what is not seen may be there.
std::vector<std::string> entries_of(const fs::path& checkpoints);

/// Steps with a committed folder, newest first; nothing has been read of them yet. Throws as entries_of().
std::vector<std::int64_t> committed_steps(const fs::path& checkpoints);

/// A committed checkpoint whose manifest is sound and whose files have the sizes that it names. Blocks are
/// not read here.
struct Found {
  std::int64_t step = 0;
  fs::path path;
  Manifest manifest;
};
/// Throws Damaged when a shard has another size, else Unreadable when one is missing or cannot be looked at.
void check_sizes(const fs::path& step_dir, const Manifest& manifest);
/// Reads the manifest of what should be `step` (-1: any). Throws Damaged when it is proven not to be sound,
/// Unreadable when files are missing or cannot be looked at, NewerFormat, and OtherKind.
Manifest sound_manifest(const fs::path& step_dir, std::int64_t step = -1);

/// What is known of a committed checkpoint.
struct Condition {
  enum class Kind {
    sound,
    damaged,  ///< proven
    unknown   ///< it cannot be read now, or by this version
  };
  Kind kind = Kind::sound;
  std::string why;                   ///< a sentence; "" when sound
  std::optional<Manifest> manifest;  ///< of a sound one of holdfast-train's
  /// Of a sound one of another program's files, or one that is unknown because some were written again.
  std::optional<FilesManifest> files = {};
  std::vector<fs::path> written_again = {};
  std::optional<Generation> generation() const;  ///< of these
};
Condition condition_of(const fs::path& step_dir, std::int64_t step = -1);

/// The newest sound one. Those that are proven damaged are passed over, and each adds a sentence to `notes`.
/// Throws Unreadable, NewerFormat or OtherKind at the first of which nothing is known: it may be the one.
std::optional<Found> newest_sound(const fs::path& checkpoints, std::vector<std::string>* notes = nullptr);
/// The folder of the newest sound one of any kind. One whose files were written again, as while its step is
/// saved again, is passed over, too, with a sentence, where an older one is sound. Else throws as
/// newest_sound() does.
std::optional<fs::path> newest_sound_folder(const fs::path& checkpoints,
                                            std::vector<std::string>* notes = nullptr);

/// Removes trash, and temporary folders that will never be committed: of generations below `alive`, and of
/// `alive` itself up to `done_step`. Called by the one committer of the run, after a commit.
void sweep(const fs::path& checkpoints, Generation alive, std::int64_t done_step = -1);
/// An empty trash folder, which says that the step is about to be moved there. Throws Error.
fs::path make_trash(const fs::path& checkpoints, std::int64_t step);
/// There is trash of this step. Throws as entries_of() does.
bool has_trash(const fs::path& checkpoints, std::int64_t step);
/// Moves a folder out of the way under a trash name (it stays there until the next sweep) and
/// returns that path.
fs::path move_to_trash(const fs::path& checkpoints, const fs::path& folder, std::int64_t step);
/// Removes a temporary folder, out of the way first: a folder is never emptied under a name from which
/// somebody, taken for dead, may still rename it into place. What cannot be removed stays for the next sweep.
void discard(const fs::path& checkpoints, const fs::path& folder, std::int64_t step) noexcept;
/// The name under which what is committed as `step` is put aside when the step is written again.
fs::path free_replaced_path(const fs::path& checkpoints, std::int64_t step);
/// For runs without a leader: one more than the highest attempt that left a trace here. `recorded`: the
/// highest that made a checkpoint; nothing: the newest sound one says it, and it throws as newest_sound()
/// does. Called by one rank before training.
int next_attempt(const fs::path& checkpoints, std::optional<int> recorded = {});

}  // namespace holdfast::checkpoint

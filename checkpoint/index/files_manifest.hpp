#pragma once
// The manifest of a checkpoint that another program has written: which files it consists of, wherever they
// lie, how long they are, and the digest of each. Kind `files` of FORMAT.md.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// A file as its writer names it.
struct ListedFile {
  std::string name;  ///< relative, with '/': "rank-0/model.pt"
  std::int64_t bytes = 0;
  std::string digest;  ///< file_digest(): 64 hex digits
  int rank = 0;        ///< that wrote it
  bool operator==(const ListedFile&) const = default;
};

struct FilesManifest {
  Generation generation;
  std::int64_t step = 0;
  int world = 1;                  ///< ranks that have voted
  std::string checkpoints;        ///< absolute, no links in it: where it was committed
  std::string folder;             ///< absolute, no links in it; the names are relative to it
  std::vector<ListedFile> files;  ///< at least one; by rank
};

/// The file's text, self-digest included.
std::string to_text(const FilesManifest& manifest);
/// The text begins as a manifest of this kind does. Nothing else of it has been looked at.
bool lists_files(std::string_view manifest_text);
/// Strict: throws Damaged that names the first thing wrong, prove() included; NewerFormat.
FilesManifest parse_files_manifest(std::string_view text);
/// The same of what was read there: complaints name the checkpoint.
FilesManifest parse_files_manifest_of(const fs::path& step_dir, std::string_view text);
/// The manifest of files in a folder; nothing when it has one of another kind, or one that is damaged. Throws
/// Unreadable when nobody can tell.
std::optional<FilesManifest> manifest_of_files(const fs::path& step_dir);
/// Throws Damaged unless names are relative, clean and named once, and the folders are absolute.
void prove(const FilesManifest& manifest);
/// Throws Damaged unless a program may call a file this.
void prove_file_name(const std::string& name);
std::int64_t total_bytes(const FilesManifest& manifest);
fs::path path_of(const FilesManifest& manifest, const ListedFile& file);
/// The modification time, by the clock that stamps files there. Throws Unreadable.
timespec written_at(const fs::path& file);
bool is_later(const timespec& a, const timespec& b);
/// A checkpoint of which files have a later time than its manifest: what was committed is not there any more,
/// but that proves no damage.
class WrittenAgain : public Unreadable {
 public:
  WrittenAgain(const std::string& what, FilesManifest listed, std::vector<fs::path> written)
      : Unreadable(Error(Exit::transient, what + " may not be whole any more",
                         written.front().string() + " was written again since")),
        manifest(std::move(listed)),
        files(std::move(written)) {}
  FilesManifest manifest;
  std::vector<fs::path> files;
};
/// Throws Damaged when a file has another size and was not written again, else Unreadable when one is missing
/// or cannot be looked at, else WrittenAgain.
void check_sizes(const fs::path& step_dir, const FilesManifest& manifest);

/// A part of the files, as a rank's vote names it: names below a folder of its own.
struct NamedFiles {
  std::string folder;  ///< absolute, no links in it
  std::vector<ListedFile> files;
};
/// All parts below the deepest folder that they have in common. A file of which two parts say the same is
/// listed once.
void put_together(std::span<const NamedFiles> parts, FilesManifest& manifest);

}  // namespace holdfast::checkpoint

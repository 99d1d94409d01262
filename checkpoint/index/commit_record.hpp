#pragma once
// commit.json: the little that retention and lists need to know of a committed checkpoint, beside its
// manifest. It lies in the folder of the checkpoint since format 5; nothing is lost with it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/index/files_manifest.hpp"
#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

inline constexpr const char* commit_record_name = "commit.json";
inline constexpr int first_version_with_commit_record = 5;  ///< of the format of the checkpoint

struct CommitRecord {
  std::int64_t step = 0;
  Generation generation;
  std::int64_t committed = 0;  ///< Unix seconds, by the committer's clock
  std::int64_t bytes = 0;      ///< of all shards, or of all files
  std::int64_t manifest_bytes = 0;
  std::string manifest_digest;  ///< 32 hex digits: those in the manifest's first line
  bool files = false;           ///< of another program's files
  bool operator==(const CommitRecord&) const = default;
};

/// What is recorded of a checkpoint whose manifest has this text.
CommitRecord commit_record_of(const Manifest& manifest, std::string_view text, std::int64_t committed);
CommitRecord commit_record_of(const FilesManifest& manifest, std::string_view text, std::int64_t committed);
/// The file's text, self-digest included; less than a kilobyte.
std::string to_text(const CommitRecord& record);
/// Strict: throws Damaged, or NewerFormat.
CommitRecord parse_commit_record(std::string_view text);
/// Nothing when there is none. Throws as parse_commit_record() does, and Unreadable when it cannot be read.
std::optional<CommitRecord> read_commit_record(const fs::path& step_dir);

}  // namespace holdfast::checkpoint

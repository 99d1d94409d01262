#pragma once
// Reading a checkpoint of another program's files: every byte against the digests of its manifest.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/files_manifest.hpp"

namespace holdfast::checkpoint {

/// SHA-512 (FIPS 180-4) of the file's bytes, cut to 256 bits, as 64 hex digits: what the client computes, too
/// (client/files.c, client/python/holdfast/_files.py). `read` is told how many bytes, now and then. Throws
/// Unreadable.
std::string file_digest(const fs::path& path, const std::function<void(std::int64_t)>& read = {});

struct CheckedFiles {
  std::vector<std::string> problems;  ///< one sentence each
  std::string damage;                 ///< the first of them that is proof, or ""
  /// Something could not be read now, or was written again since: what is said of that proves no damage.
  bool unreadable = false;
  std::int64_t bytes = 0;  ///< read
};
/// All files of the checkpoint in that folder, four at a time. `progress`: bytes done and in total; what it
/// throws ends the reading. Throws Unreadable where the manifest is gone.
CheckedFiles check_files(const fs::path& step_dir, const FilesManifest& manifest,
                         const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

/// What is known of the checkpoints that a program may begin from.
struct Judgement {
  std::vector<std::int64_t> steps;  ///< newest first: none of them is proven damaged
  std::vector<std::pair<std::int64_t, std::string>> damaged;  ///< newer than those, and why
};
/// `on_record`: durable steps, newest first. Looks at each until one is not proven damaged: its manifest, its
/// sizes, and, of at most `read_bytes` of files, every byte. What cannot be read now counts as any other: who
/// begins from it will see, and nothing older is taken in its place. A step without a manifest is one whose
/// files were only counted. Behind one with a manifest it may also be one that was removed: taken only where
/// all others are damaged.
Judgement judge(const fs::path& checkpoints, std::span<const std::int64_t> on_record,
                std::int64_t read_bytes);

}  // namespace holdfast::checkpoint

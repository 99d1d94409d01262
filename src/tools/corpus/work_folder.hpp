#pragma once
// What is done so far: results of parts in OUTPUT.work/KEY, each written aside and renamed, so that a run
// that was killed goes on where it was. The key names settings and inputs; others have a folder of their own.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/files.hpp"

namespace holdfast::corpus {

struct WorkFolder {
  std::filesystem::path path;  ///< OUTPUT.work/KEY

  std::filesystem::path model() const { return path / "tokenizer.model"; }  ///< trained here
  std::filesystem::path fingerprints(std::size_t part) const { return part_file("scan", part, ".bin"); }
  std::filesystem::path kept() const { return path / "kept.bin"; }
  std::filesystem::path train(std::size_t part) const { return part_file("part", part, ".train"); }
  std::filesystem::path validation(std::size_t part) const { return part_file("part", part, ".val"); }
  /// Written last: a part that has it is done.
  std::filesystem::path result(std::size_t part) const { return part_file("part", part, ".json"); }
  std::filesystem::path merged_train() const { return path / "merged.train"; }
  std::filesystem::path merged_validation() const { return path / "merged.val"; }

 private:
  std::filesystem::path part_file(const char* kind, std::size_t part, const char* end) const;
};

/// Makes the folder. Error (runtime) where OUTPUT.work is another user's, or a link: what is in it would
/// become part of the output.
void create(const WorkFolder& work);
/// Removes it, those of other settings, and OUTPUT.work when nothing is left in it.
void remove(const WorkFolder& work);

/// Holds OUTPUT.work for this process while it lives. Error (usage) when another one does, on file systems
/// that can tell.
class WorkLock {
 public:
  explicit WorkLock(const WorkFolder& work);

 private:
  files::Fd fd_;
};

}  // namespace holdfast::corpus

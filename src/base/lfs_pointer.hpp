#pragma once
// Git LFS pointers: the few lines that lie in the place of a large file until 'git lfs pull' has got it.
// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
#include <filesystem>
#include <string_view>

#include "src/base/error.hpp"

namespace holdfast {

/// `begin`: the first bytes of a file.
inline bool is_lfs_pointer(std::string_view begin) {
  return begin.starts_with("version https://git-lfs.github.com/spec/") ||
         begin.starts_with("version https://hawser.github.com/spec/");
}

/// Error (usage) when the file that begins so is a pointer.
inline void refuse_lfs_pointer(const std::filesystem::path& file, std::string_view begin) {
  if (is_lfs_pointer(begin))
    throw Error(Exit::usage, "cannot use " + file.string(),
                "it is a Git LFS pointer, and not yet the file itself",
                "Get the file with 'git lfs pull' in its repository?");
}

}  // namespace holdfast

#include "checkpoint/io/aside_file.hpp"

#include <fcntl.h>
#include <stdio.h>  // renameat2
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.hpp"

namespace holdfast::checkpoint {
namespace {

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

[[noreturn]] void refuse_existing(const fs::path& target) {
  throw Error(Exit::usage, target.string() + " exists", "nothing is overwritten", "Choose another name?");
}

void check_target(const fs::path& target, std::int64_t bytes) {
  struct stat info {};
  if (::lstat(target.c_str(), &info) == 0) refuse_existing(target);
  const fs::path folder = folder_of(target);
  std::error_code ignored;
  if (!target.has_filename() || !fs::is_directory(folder, ignored))
    throw Error(Exit::usage, "cannot write " + target.string(),
                target.has_filename() ? folder.string() + " is not a folder" : "it does not name a file");
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0) return;  // the file itself will tell
  const auto free = static_cast<std::int64_t>(room.f_bavail) * static_cast<std::int64_t>(room.f_frsize);
  if (bytes > free)
    throw Error(Exit::runtime, "there is no room for " + target.string(),
                "it takes " + std::to_string(bytes) + " bytes, " + std::to_string(free) + " are free there",
                "Write it somewhere else?");
}

fs::path aside_of(const fs::path& target) {
  return files::name_aside(folder_of(target) / ("." + target.filename().string()));
}

}  // namespace

AsideFile::AsideFile(fs::path target, std::int64_t bytes) : target_(std::move(target)) {
  check_target(target_, bytes);
  file_ = std::make_unique<NewFile>(aside_of(target_), bytes, true);
}

void AsideFile::commit() {
  file_->finish();
  const fs::path& aside = file_->path();
  if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) refuse_existing(target_);
    if (errno != EINVAL && errno != ENOSYS) throw system_error("cannot name " + target_.string(), errno);
    // Without that call a hard link is what never replaces; the other name goes away with the object.
    if (::link(aside.c_str(), target_.c_str()) != 0) {
      if (errno == EEXIST) refuse_existing(target_);
      throw system_error("cannot name " + target_.string(), errno);
    }
  } else {
    file_->keep();
  }
  files::sync_folder(folder_of(target_));
}

}  // namespace holdfast::checkpoint

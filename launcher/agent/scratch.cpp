#include "launcher/agent/scratch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/agent/programs.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

Scratch scratch_of(const RunDir& run, const std::string& node) {
  const std::string path = run.path.string();
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(mix64(hash_name(path.data(), path.size()))));
  return {fs::path("/dev/shm") / ("holdfast-" + std::to_string(::getuid()) + "-" + hash), node};
}

void make_scratch(const Scratch& scratch) {
  if (::mkdir(scratch.folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot create " + scratch.folder.string(), errno);
  struct stat facts {};
  if (::lstat(scratch.folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) || facts.st_uid != ::getuid() ||
      (facts.st_mode & 077))
    throw Error(Exit::runtime, "cannot use " + scratch.folder.string(),
                "it exists and is not this user's private folder", "Remove it");
  // Renamed into place: an mpirun of another agent of this run may be looking.
  const fs::path aside = scratch.folder / ("holdfast-" + scratch.node);
  std::error_code ignored;
  fs::remove(aside, ignored);
  fs::create_symlink(this_program(), aside);
  fs::rename(aside, scratch.program());
}

bool remove_scratch(const Scratch& scratch) {
  std::error_code ignored;
  fs::remove(scratch.socket(), ignored);
  bool shared = false;
  for (const auto& name : files::list(scratch.folder)) {
    if (name.starts_with("hosts-" + scratch.node + "-")) fs::remove(scratch.folder / name, ignored);
    shared = shared || name.ends_with(".sock");
  }
  if (shared) return false;
  fs::remove(scratch.program(), ignored);
  fs::remove(scratch.folder, ignored);  // only when it is empty
  return true;
}

void remove_local_level(const RunDir& run, const std::string& local) {
  if (local == "none") return;
  const fs::path folder = local_level_folder(local == "auto" ? "/dev/shm" : local, run.path);
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) log::warn("cannot remove {}: {}", folder.string(), error.message());
}

}  // namespace holdfast::launcher

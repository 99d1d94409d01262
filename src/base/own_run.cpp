#include "src/base/own_run.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

bool is_trusted(uid_t owner) { return owner == ::geteuid() || owner == 0; }

bool is_group_of_one(gid_t number) {
  const group* found = ::getgrgid(number);
  if (!found) return false;
  const std::string me = name_of_user(::geteuid());
  if (found->gr_name != me) return false;
  for (char** member = found->gr_mem; *member; ++member)
    if (*member != me) return false;
  return true;
}

/// Looks at parts of one run directory.
class Looker {
 public:
  explicit Looker(const RunDir& run) : run_(run) {}

  /// `kind`: S_IFDIR or S_IFREG.
  void look(const fs::path& path, mode_t kind) const {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) return absent(path, errno);
    if (S_ISLNK(facts.st_mode)) refuse(path, "is a symbolic link", "Remove it?");
    if ((facts.st_mode & S_IFMT) != kind)
      refuse(path, kind == S_IFDIR ? "is not a folder" : "is not a regular file", "Remove it?");
    judge(path, facts);
  }
  void look_in(const fs::path& folder) const {
    look(folder, S_IFDIR);
    for (const auto& name : files::list_or_fail(folder)) look(folder / name, S_IFREG);
  }
  /// For a folder with files that are written to by name. There may be thousands: none is looked at by
  /// itself, where the folder says which are links.
  void look_for_links_in(const fs::path& folder) const {
    look(folder, S_IFDIR);
    std::error_code error, gone;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      if (at->is_symlink(gone)) refuse(at->path(), "is a symbolic link", "Remove it?");
    if (error && error != std::errc::no_such_file_or_directory)
      throw system_error("cannot list " + folder.string(), error.value());
  }
  /// It may be a link of somebody who is trusted.
  void look_through(const fs::path& folder) const {
    struct stat facts {};
    if (::lstat(folder.c_str(), &facts) != 0) return absent(folder, errno);
    if (S_ISLNK(facts.st_mode)) {
      if (!is_trusted(facts.st_uid)) judge(folder, facts);
      if (::stat(folder.c_str(), &facts) != 0) return absent(folder, errno);
    }
    if (!S_ISDIR(facts.st_mode)) refuse(folder, "is not a folder", "Remove it?");
    judge(folder, facts);
  }

 private:
  static void absent(const fs::path& path, int error) {
    if (error != ENOENT && error != ENOTDIR) throw system_error("cannot look at " + path.string(), error);
  }
  void judge(const fs::path& path, const struct stat& facts) const {
    if (!is_trusted(facts.st_uid))
      refuse(path, "belongs to " + name_of_user(facts.st_uid) + ", not to " + name_of_user(::geteuid()),
             "Use a run directory of your own, perhaps a copy that you have looked through?");
    if (others_can_write(facts))
      refuse(path, fmt::format("can be changed by others: its mode is {:04o}", facts.st_mode & 07777U),
             fmt::format("If nobody has: 'chmod go-w {}'?", path.string()));
  }
  [[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& hint) const {
    throw Error(Exit::usage, "the run directory " + run_.path.string() + " is not yours alone",
                path.string() + " " + what + ", and it decides what is run in your name", hint);
  }

  const RunDir& run_;
};

}  // namespace

bool others_can_write(const struct stat& facts) {
  return (facts.st_mode & S_IWOTH) != 0 || ((facts.st_mode & S_IWGRP) != 0 && !is_group_of_one(facts.st_gid));
}

void require_own_run(const RunDir& run) {
  const Looker looker(run);
  looker.look_through(run.path);
  for (const auto& file : {run.config(), run.settings(), run.model(), run.cluster(), run.plan(), run.script(),
                           run.secret(), run.owner(), run.excluded(), run.bare_lock(), run.nodes(),
                           run.metrics(), run.durable(), run.result(), run.algorithms()})
    looker.look(file, S_IFREG);
  for (const auto& folder : {run.configs(), run.terms(), run.events()}) looker.look_in(folder);
  looker.look_for_links_in(run.logs());
  looker.look_through(run.checkpoints());
}

std::string who_could_replace(const fs::path& run_dir) {
  fs::path folder = run_dir;
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    struct stat facts {};
    if (::stat(folder.c_str(), &facts) != 0) continue;
    const std::string what =
        "could put another folder in the place of the run directory while the job "
        "waits, and it would be run in your name";
    if (!is_trusted(facts.st_uid))
      return fmt::format("{}, whose {} is, {}", name_of_user(facts.st_uid), folder.string(), what);
    // With the sticky bit they cannot rename what is not theirs.
    if ((facts.st_mode & S_ISVTX) == 0 && others_can_write(facts))
      return fmt::format(
          "others who may write to {} (its mode is {:04o}) {}: take that from them ('chmod "
          "go-w'), or set its sticky bit ('chmod +t')",
          folder.string(), facts.st_mode & 07777U, what);
  }
  return "";
}

}  // namespace holdfast

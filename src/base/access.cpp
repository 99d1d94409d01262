#include "src/base/access.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.hpp"

namespace holdfast {
namespace {

std::string name_of_group(gid_t number) {
  const group* found = ::getgrgid(number);
  return found ? found->gr_name : std::to_string(number);
}

/// It, or the folder on the way to it that stops this user.
std::filesystem::path closed_part(const std::filesystem::path& path, struct stat& facts) {
  std::filesystem::path at = path;
  while (::stat(at.c_str(), &facts) != 0 && at.has_relative_path()) at = at.parent_path();
  return at;
}

}  // namespace

std::string name_of_user(uid_t number) {
  const passwd* user = ::getpwuid(number);
  return user ? user->pw_name : std::to_string(number);
}

bool may_read(const std::filesystem::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return errno != EACCES;
  return ::access(path.c_str(), S_ISDIR(facts.st_mode) ? R_OK | X_OK : R_OK) == 0 || errno != EACCES;
}

void refuse_reading(const std::filesystem::path& path) {
  struct stat facts {};
  const auto closed = closed_part(path, facts);
  const std::string owner = name_of_user(facts.st_uid), group = name_of_group(facts.st_gid);
  const bool for_group = (facts.st_mode & S_IRGRP) != 0;
  throw Error(Exit::usage, fmt::format("you may not read {}", path.string()),
              fmt::format("{} belongs to {}, and {}", closed == path ? "it" : closed.string(), owner,
                          for_group ? fmt::format("only the group {} may read it, too", group)
                                    : "nobody else may read it"),
              for_group ? fmt::format("Ask to be taken into the group {}?", group)
                        : fmt::format("Ask {} for 'chmod g+r{} {}', for the group {}?", owner,
                                      S_ISDIR(facts.st_mode) ? "x" : "", closed.string(), group));
}

std::string owner_of(const std::filesystem::path& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? name_of_user(facts.st_uid) : "";
}

}  // namespace holdfast

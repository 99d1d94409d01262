#include "src/preflight/paths.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace holdfast::preflight {

namespace fs = std::filesystem;

std::string why_absent(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return "";
  return error ? error.message() : std::strerror(ENOENT);
}

fs::path what_exists(fs::path path) {
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

std::string why_not_writable(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return std::strerror(ENOTDIR);
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace holdfast::preflight

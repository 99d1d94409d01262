#pragma once
// What can be told of a path before it is used.
#include <filesystem>
#include <string>

namespace holdfast::preflight {

/// Why `path` cannot be used at all, or "".
std::string why_absent(const std::filesystem::path& path);
/// `path`, or the nearest above it that there is.
std::filesystem::path what_exists(std::filesystem::path path);
/// Why nothing can be made in `folder`, or "".
std::string why_not_writable(const std::filesystem::path& folder);

}  // namespace holdfast::preflight

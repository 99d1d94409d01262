#pragma once
// Reads a log that may still grow.
#include <cstdint>
#include <filesystem>
#include <string>

namespace holdfast::launcher {

class LogReader {
 public:
  /// Begins so that `last_lines` lines of what is there come; negative: with all. The file need not be there
  /// yet.
  explicit LogReader(std::filesystem::path file, std::int64_t last_lines = -1);

  const std::filesystem::path& file() const { return file_; }
  /// What has come since, at most 1 MiB; empty: nothing. A file that has become shorter is read from its
  /// beginning. Throws Error.
  std::string more();

 private:
  std::filesystem::path file_;
  std::int64_t last_lines_;
  std::uint64_t at_ = 0;
  bool begun_ = false;
};

}  // namespace holdfast::launcher

#pragma once
// For readers of files: a folder in memory, and inputs of several files in one.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "src/base/error.hpp"

namespace holdfast::fuzz {

/// A folder of this process, which goes with it.
class Scratch {
 public:
  Scratch() { expects(::mkdtemp(folder_.data()) != nullptr, "a folder for the files of a fuzzer"); }
  ~Scratch() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path path() const { return folder_; }
  /// The path of a name in it. Missing folders are made.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::string folder_ = "/dev/shm/holdfast-fuzz-XXXXXX";
};

/// Cuts off what stands before the next NUL, which none of the texts may have, and returns it.
inline std::string_view take_part(std::string_view& bytes) {
  const std::size_t end = bytes.find('\0');
  const std::string_view part = bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  return part;
}

}  // namespace holdfast::fuzz

#pragma once
// A folder of one test, its files, and what an Error says.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/base/error.hpp"

namespace holdfast::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "holdfast-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The text and exit code of the Error that `action` throws; fails the test when it throws none.
struct Refusal {
  std::string text;
  Exit exit = Exit::done;
};
template <class Action>
Refusal refusal_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return {e.what(), e.exit()};
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace holdfast::test

#pragma once
// SLURM's tools replaced by fake_bin/replay for the length of a test: put first in PATH, with answers from
// the test.
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "src/base/env.hpp"
#include "src/base/files.hpp"

namespace holdfast::test {

class FakeTools {
 public:
  FakeTools() : path_before_(env::get_or("PATH", "")) {
    std::string name = (std::filesystem::temp_directory_path() / "fake-slurm-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    env::set("FAKE_SLURM", folder_.string());
    env::set("PATH", HOLDFAST_SOURCE_DIR "/tests/slurm/fake_bin:" + path_before_);
  }
  ~FakeTools() {
    env::set("PATH", path_before_);
    ::unsetenv("FAKE_SLURM");
    std::filesystem::remove_all(folder_);
  }
  FakeTools(const FakeTools&) = delete;

  void answer(const std::string& tool, const std::string& out, const std::string& err = {}, int status = 0) {
    files::replace_atomically(folder_ / (tool + ".out"), out);
    files::replace_atomically(folder_ / (tool + ".err"), err);
    files::replace_atomically(folder_ / (tool + ".rc"), std::to_string(status));
  }
  void hang(const std::string& tool) { files::replace_atomically(folder_ / (tool + ".sleep"), "60"); }
  /// SLURM ends the job's processes, and with them each call of the tool, after it has been written down.
  void end_job(const std::string& tool) { files::replace_atomically(folder_ / (tool + ".ends"), ""); }
  /// All calls so far: "[ tool", one argument a line, "]".
  std::string calls() const {
    return std::filesystem::exists(folder_ / "calls") ? files::read_text(folder_ / "calls") : "";
  }
  /// The environment of the last call of a tool, one variable a line.
  std::string environment(const std::string& tool) const {
    return "\n" + files::read_text(folder_ / (tool + ".env"));
  }

  static std::string captured(const std::string& name, const std::string& release = "22.05") {
    return files::read_text(HOLDFAST_SOURCE_DIR "/tests/slurm/captured/" + release + "/" + name);
  }

 private:
  std::string path_before_;
  std::filesystem::path folder_;
};

}  // namespace holdfast::test

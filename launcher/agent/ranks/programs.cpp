#include "launcher/agent/ranks/programs.hpp"

#include <unistd.h>

#include <array>

#include "src/base/bundle.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

namespace {
constexpr const char *installed = "HOLDFAST_PROGRAM", *python = "HOLDFAST_PYTHON";
}

fs::path this_program() {
  const fs::path running = program_path();
  // A copy in the node's memory may have been removed since it was started.
  return files::is_there(running) ? running : fs::path(env::get_or(installed, running.string()));
}

void name_installed_program() { env::set(installed, this_program().string()); }

void name_python_folder() {
  if (const fs::path folder = python_folder(); !folder.empty()) env::set(python, folder.string());
}

std::string named_python_folder() { return env::get_or(python, ""); }

fs::path find_program(const std::string& name) {
  const fs::path beside = this_program().parent_path();
  const std::array places = {beside / name, beside / "../src/tools/cli" / name,
                             beside / "../src/train" / name, beside / "../launcher" / name};
  for (const auto& place : places)
    if (::access(place.c_str(), X_OK) == 0) return place.lexically_normal();
  throw Error(Exit::runtime, name + " is missing", "it should be in " + beside.string(),
              "Install all of Holdfast (built with HOLDFAST_TOOLS, if it is holdfast-tool)?");
}

}  // namespace holdfast::launcher

#include "launcher/agent/ranks/programs.hpp"

#include <unistd.h>

#include <array>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

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

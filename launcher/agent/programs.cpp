#include "launcher/agent/programs.hpp"

#include <unistd.h>

#include <array>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

fs::path find_program(const std::string& name) {
  const fs::path beside = this_program().parent_path();
  const std::array places = {beside / name, beside / "../src/tool" / name, beside / "../src/train" / name,
                             beside / "../launcher" / name};
  for (const auto& place : places)
    if (::access(place.c_str(), X_OK) == 0) return place.lexically_normal();
  throw Error(Exit::runtime, name + " is missing", "it should be in " + beside.string(),
              "Install Holdfast completely?");
}

}  // namespace holdfast::launcher

// Checkpoints for torch.distributed.checkpoint: PyTorch writes them, as it alone knows its format, by the
// Python program that comes with Holdfast.
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "src/base/bundle.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/tools/cli/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {
/// As -m runs a module, but modules are not looked for in the working folder, which may be anybody's. -P is
/// the same, and not known to Python before 3.11.
constexpr const char* run_module =
    "import sys; sys.path = [folder for folder in sys.path if folder]; "
    "import runpy; runpy.run_module('holdfast.torch', run_name='__main__', alter_sys=True)";
}  // namespace

int ckpt_export_dcp(const DcpOrder& order) {
  folder_of(clean(order.path));  // what is no checkpoint needs no interpreter
  if (const fs::path ours = python_folder(); !ours.empty()) {
    const std::string theirs = env::get_or("PYTHONPATH", "");
    env::set("PYTHONPATH", ours.string() + (theirs.empty() ? "" : ":" + theirs));
  }
  std::vector<std::string> words = {
      "python3", "-c", run_module, "export-dcp", clean(order.path).string(), clean(order.out).string()};
  if (!order.dtype.empty()) words.insert(words.end(), {"--dtype", order.dtype});
  if (order.weights_only) words.emplace_back("--weights-only");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw Error(Exit::runtime, "cannot start python3", system_error("", errno).why(),
              "PyTorch writes these folders: put a python3 first in PATH that has torch and numpy?");
}

}  // namespace holdfast::tool

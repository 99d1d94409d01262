#include "src/weights/find_checkpoint.hpp"

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::weights {
namespace fs = std::filesystem;

std::optional<checkpoint::LeasedCheckpoint> find_checkpoint(const fs::path& path,
                                                            const std::string& asked_by) {
  if (files::is_there(path / checkpoint::manifest_file_name)) return checkpoint::lease_checkpoint(path);
  const fs::path inside = RunDir{path}.checkpoints();
  const fs::path folder = files::is_there(inside) ? inside : path;
  if (checkpoint::committed_steps(folder).empty()) {
    if (folder == path) return {};
    throw Error(Exit::usage, "the run " + path.string() + " has no checkpoint", asked_by,
                "Wait for its first one?");
  }
  auto newest = checkpoint::lease_newest(folder);
  if (!newest) throw Error(Exit::runtime, "no sound checkpoint in " + folder.string(), asked_by);
  return newest;
}

}  // namespace holdfast::weights

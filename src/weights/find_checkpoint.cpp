#include "src/weights/find_checkpoint.hpp"

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::weights {
namespace {

namespace fs = std::filesystem;

/// `one` for a checkpoint, `newest` for a folder of them.
template <class Result, class One, class Newest>
std::optional<Result> find(const fs::path& path, const std::string& asked_by, One one, Newest newest) {
  if (files::is_there(path / checkpoint::manifest_file_name)) return one(path);
  const fs::path inside = RunDir{path}.checkpoints();
  const fs::path folder = files::is_there(inside) ? inside : path;
  if (checkpoint::committed_steps(folder).empty()) {
    if (folder == path) return {};
    throw Error(Exit::usage, "the run " + path.string() + " has no checkpoint", asked_by,
                "Wait for its first one?");
  }
  auto found = newest(folder);
  if (!found) throw Error(Exit::runtime, "no sound checkpoint in " + folder.string(), asked_by);
  return found;
}

}  // namespace

void require_there(const fs::path& path, const std::string& asked_by) {
  if (!files::exists_or_fail(path))
    throw Error(Exit::usage, "there are no weights at " + path.string(), asked_by,
                "Name a Hugging Face folder, a safetensors file, a checkpoint or a run?");
}

std::optional<checkpoint::LeasedCheckpoint> find_checkpoint(const fs::path& path,
                                                            const std::string& asked_by) {
  return find<checkpoint::LeasedCheckpoint>(
      path, asked_by, [](const fs::path& at) { return checkpoint::lease_checkpoint(at); },
      [](const fs::path& in) { return checkpoint::lease_newest(in); });
}

std::optional<checkpoint::Found> look_for_checkpoint(const fs::path& path, const std::string& asked_by) {
  return find<checkpoint::Found>(
      path, asked_by,
      [](const fs::path& at) {
        checkpoint::Manifest manifest = checkpoint::read_manifest(at);
        const std::int64_t step = manifest.point.step;
        return checkpoint::Found{step, at, std::move(manifest)};
      },
      [](const fs::path& in) { return checkpoint::newest_sound(in); });
}

}  // namespace holdfast::weights

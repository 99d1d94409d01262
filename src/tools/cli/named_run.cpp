#include "src/tools/cli/named_run.hpp"

#include <filesystem>

#include "checkpoint/index/best.hpp"
#include "checkpoint/index/catalog.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/error.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* best_name = "best";

bool is_folder(const fs::path& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

/// The best checkpoint of a run, or of a folder of checkpoints.
fs::path best_in(const fs::path& path) {
  const fs::path inside = RunDir{path}.checkpoints();
  const fs::path folder = is_folder(inside) ? inside : path;
  if (const auto best = checkpoint::best_of(folder)) return checkpoint::committed_path(folder, best->step);
  throw Error(Exit::usage, path.string() + " has no best checkpoint", "none is marked",
              "A run marks it that has eval.keep_best; 'holdfast ckpt ls' shows which there are");
}

}  // namespace

std::string with_run_found(const std::string& word) {
  std::error_code unknown;
  if (fs::exists(word, unknown)) return word;
  if (const fs::path path(word); path.filename() == best_name && path.has_parent_path()) {
    const std::string run = with_run_found(path.parent_path().string());
    if (is_folder(run)) return best_in(run).string();
  }
  if (const auto run = slurm::run_called(word)) return run->path.string();
  if (!slurm::may_be_job(word)) return word;
  slurm::ClusterCli cluster;
  return slurm::find_run(word, cluster).path.string();
}

}  // namespace holdfast::tool

#include "src/tools/cli/named_run.hpp"

#include <filesystem>

#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"

namespace holdfast::tool {

std::string with_run_found(const std::string& word) {
  std::error_code unknown;
  if (std::filesystem::exists(word, unknown)) return word;
  if (const auto run = slurm::run_called(word)) return run->path.string();
  if (!slurm::may_be_job(word)) return word;
  slurm::ClusterCli cluster;
  return slurm::find_run(word, cluster).path.string();
}

}  // namespace holdfast::tool

#include "launcher/agent/ranks/rank_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "launcher/agent/ranks/programs.hpp"
#include "src/base/env.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

void put(std::vector<std::string>& environment, const std::string& entry) {
  const std::string key = entry.substr(0, entry.find('=') + 1);
  std::erase_if(environment, [&](const std::string& e) { return e.starts_with(key); });
  environment.push_back(entry);
}

bool has(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& e) { return e.starts_with(name + "="); });
}

/// An empty PYTHONPATH is as none, but an empty entry in it is the working folder.
void append_to_python_path(std::vector<std::string>& environment, const std::string& folder) {
  if (folder.empty()) return;
  const std::string variable = "PYTHONPATH=";
  const auto own = std::ranges::find_if(
      environment, [&](const std::string& entry) { return entry.starts_with(variable); });
  const std::string before = own == environment.end() ? "" : own->substr(variable.size());
  put(environment, variable + (before.empty() ? folder : before + ":" + folder));
}

}  // namespace

std::vector<std::string> attempt_environment(const RunDir& run, const std::string& node,
                                             const control::StartRanks& order,
                                             const config::ClusterFacts& cluster, const config::Rank& rank,
                                             const std::vector<std::string>& of_job) {
  // Another launcher's variables would make the ranks believe that they belong to it.
  auto environment = env::without({"SLURM",
                                   "PMI_",
                                   "PMIX_",
                                   "OMPI_COMM",
                                   "OMPI_UNIVERSE",
                                   "OMPI_APP",
                                   "OMPI_MCA_ess",
                                   "OMPI_MCA_orte",
                                   "OMPI_MCA_pmix",
                                   "RANK=",
                                   "LOCAL_RANK=",
                                   "GROUP_RANK=",
                                   "NODE_RANK=",
                                   "ROLE_",
                                   "WORLD_SIZE=",
                                   "LOCAL_WORLD_SIZE=",
                                   "GROUP_WORLD_SIZE=",
                                   "MASTER_ADDR=",
                                   "MASTER_PORT=",
                                   "TORCHELASTIC_",
                                   "HOLDFAST_RANK",
                                   "HOLDFAST_WORLD",
                                   "HOLDFAST_LOCAL",
                                   "HOLDFAST_TERM",
                                   "HOLDFAST_ATTEMPT",
                                   "HOLDFAST_NODE",
                                   "HOLDFAST_RUN_DIR",
                                   "HOLDFAST_AGENT",
                                   "HOLDFAST_KEY",
                                   "HOLDFAST_HEARTBEAT",
                                   "HOLDFAST_TRUSTED",
                                   "HOLDFAST_DURABLE",
                                   "HOLDFAST_PYTHON",
                                   "HOLDFAST_BUFFERS",
                                   "HOLDFAST_SEALED",
                                   "HOLDFAST_SLURM_JOB_NAME="});
  for (const auto& entry : of_job) put(environment, entry);
  for (const auto& entry : env::all())  // settings, and where it is installed
    if (entry.starts_with("PMIX_MCA_") || entry.starts_with("PMIX_PREFIX=")) environment.push_back(entry);
  for (const auto& entry : cluster.environment) put(environment, entry);
  if (!has(environment, "OMP_NUM_THREADS"))
    put(environment,
        fmt::format("OMP_NUM_THREADS={}", std::max(1, cluster.cpus_per_node / order.ranks_per_node)));
  // Threads that spin at barriers take the cores from the ranks that are still computing.
  if (!has(environment, "OMP_WAIT_POLICY")) put(environment, "OMP_WAIT_POLICY=passive");
  for (const auto& entry : rank.environment) put(environment, entry);
  const auto promises = config::promises_of(rank);
  if (!promises.always_reports()) append_to_python_path(environment, named_python_folder());
  put(environment, "HOLDFAST_RUN_DIR=" + run.path.string());
  put(environment, "HOLDFAST_NODE=" + node);
  put(environment, fmt::format("HOLDFAST_ATTEMPT={}", order.attempt));
  if (promises.speaks_mpi && !cluster.control_interface.empty() &&
      !has(environment, "OMPI_MCA_btl_tcp_if_include"))
    put(environment, "OMPI_MCA_btl_tcp_if_include=" + cluster.control_interface);
  return environment;
}

std::filesystem::path attempt_logs(const RunDir& run, int attempt) {
  return run.logs() / fmt::format("attempt-{:04}", attempt);
}

int attempt_of_logs(const std::string& name) {
  constexpr std::string_view prefix = "attempt-";
  int attempt = 0;
  if (!name.starts_with(prefix)) return 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), attempt);
  return error == std::errc{} && end == name.data() + name.size() ? attempt : 0;
}

std::filesystem::path agent_log(const RunDir& run, const std::string& node) {
  return run.logs() / ("agent-" + node + ".log");
}

std::filesystem::path rank_log(const RunDir& run, int attempt, int rank) {
  return attempt_logs(run, attempt) / fmt::format("rank-{:05}.log", rank);
}

}  // namespace holdfast::launcher

#include "launcher/agent/ranks/rank_start.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/agent/ranks/programs.hpp"
#include "src/base/env.hpp"
#include "src/base/rank_env.hpp"

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

}  // namespace

bool through_mpirun(const config::Rank& rank) {
  if (rank.launch != "auto") return rank.launch == "mpi";
  return own_trainer(rank);
}

std::vector<std::string> rank_command(const config::Rank& rank) {
  auto command = rank.command;
  if (command.front() == "holdfast-train") command.front() = find_program("holdfast-train").string();
  return command;
}

std::vector<std::string> attempt_environment(const RunDir& run, const std::string& node,
                                             const Scratch& scratch, int term, int attempt, int world,
                                             int ranks_per_node, const config::ClusterFacts& cluster,
                                             const config::Rank& rank,
                                             const std::optional<Restores>& restores) {
  // Another launcher's variables would make mpirun and the ranks believe that they belong to it.
  auto environment = env::without({"SLURM",
                                   "PMI_",
                                   "PMIX_RANK",
                                   "PMIX_NAMESPACE",
                                   "PMIX_SERVER",
                                   "PMIX_SECURITY",
                                   "PMIX_HOSTNAME",
                                   "PMIX_VERSION",
                                   "OMPI_COMM",
                                   "OMPI_UNIVERSE",
                                   "OMPI_APP",
                                   "OMPI_MCA_ess",
                                   "OMPI_MCA_orte",
                                   "OMPI_MCA_pmix",
                                   "HOLDFAST_RANK",
                                   "HOLDFAST_WORLD",
                                   "HOLDFAST_LOCAL",
                                   "HOLDFAST_TERM",
                                   "HOLDFAST_ATTEMPT",
                                   "HOLDFAST_NODE",
                                   "HOLDFAST_RUN_DIR",
                                   "HOLDFAST_AGENT",
                                   "HOLDFAST_TRUSTED",
                                   "HOLDFAST_DURABLE"});
  for (const auto& entry : cluster.environment) put(environment, entry);
  if (!has(environment, "OMP_NUM_THREADS"))
    put(environment,
        fmt::format("OMP_NUM_THREADS={}", std::max(1, cluster.cpus_per_node / std::max(1, ranks_per_node))));
  // Threads that spin at barriers take the cores from the ranks that are still computing.
  if (!has(environment, "OMP_WAIT_POLICY")) put(environment, "OMP_WAIT_POLICY=passive");
  for (const auto& entry : rank.environment) put(environment, entry);
  put(environment, "HOLDFAST_RUN_DIR=" + run.path.string());
  put(environment, "HOLDFAST_NODE=" + node);
  put(environment, fmt::format("HOLDFAST_TERM={}", term));
  put(environment, fmt::format("HOLDFAST_ATTEMPT={}", attempt));
  put(environment, fmt::format("HOLDFAST_WORLD={}", world));
  put(environment, fmt::format("HOLDFAST_RANKS_PER_NODE={}", ranks_per_node));
  put(environment, "HOLDFAST_AGENT_SOCKET=" + scratch.socket().string());
  if (restores) {
    put(environment, fmt::format("HOLDFAST_TRUSTED_STEP={}", restores->trusted_step));
    put(environment, "HOLDFAST_DURABLE_STEPS=" + text_of_steps(restores->durable_steps));
  }
  return environment;
}

std::vector<std::string> mpirun_arguments(const Scratch& scratch, int attempt, int world,
                                          const std::string& interface) {
  std::vector<std::string> argv = {"mpirun",
                                   "--mca",
                                   "plm",
                                   "rsh",
                                   "--mca",
                                   "plm_rsh_agent",
                                   scratch.program().string() + " spawn",
                                   "--mca",
                                   "plm_rsh_no_tree_spawn",
                                   "1",  // mpirun starts every daemon itself
                                   "--mca",
                                   "plm_rsh_num_concurrent",
                                   "256",
                                   "--mca",
                                   "ras",
                                   "^slurm",
                                   "--mca",
                                   "rmaps",
                                   "seq",
                                   "--leave-session-attached",  // the daemons stay children of our agents
                                   "--bind-to",
                                   "none",
                                   "-x",
                                   "HOLDFAST_TRUSTED_STEP",
                                   "-x",
                                   "HOLDFAST_DURABLE_STEPS",
                                   "--hostfile",
                                   scratch.hosts(attempt).string(),
                                   "-n",
                                   std::to_string(world)};
  if (!interface.empty())
    for (const char* which : {"oob_tcp_if_include", "btl_tcp_if_include"})
      argv.insert(argv.end(), {"--mca", which, interface});
  argv.insert(argv.end(), {scratch.program().string(), "start-rank"});
  return argv;
}

std::string hosts_file(const std::vector<std::string>& slots, int ranks_per_node) {
  std::string text;
  for (const auto& node : slots)
    for (int i = 0; i < ranks_per_node; ++i) text += node + "\n";
  return text;
}

std::filesystem::path attempt_logs(const RunDir& run, int attempt) {
  return run.logs() / fmt::format("attempt-{:04}", attempt);
}

std::filesystem::path agent_log(const RunDir& run, const std::string& node) {
  return run.logs() / ("agent-" + node + ".log");
}

std::filesystem::path rank_log(const RunDir& run, int attempt, int rank) {
  return attempt_logs(run, attempt) / fmt::format("rank-{:05}.log", rank);
}

}  // namespace holdfast::launcher

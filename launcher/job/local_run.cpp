#include "launcher/job/local_run.hpp"

#include <fmt/format.h>

#include "launcher/job/job_monitor.hpp"
#include "launcher/job/preparation.hpp"
#include "launcher/job/run_owner.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/commands.hpp"
#include "slurm/local_cluster.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

config::RunConfig on_one_node(config::Loaded loaded, bool has_gpus) {
  auto& cluster = loaded.config.cluster;
  const auto refuse_flag = [&](const char* key, int value, int here) {
    if (value != here && loaded.origin[key] == "flag")
      throw Error(Exit::usage, fmt::format("{} cannot be {} in a local run", key, value),
                  "it has this machine alone", "Leave it out, or submit the run to SLURM?");
  };
  refuse_flag("cluster.nodes", cluster.nodes, 1);
  refuse_flag("cluster.spares", cluster.spares, 0);
  if (!loaded.config.container.image.empty())
    throw Error(Exit::usage, "a local run cannot use container.image", "SLURM's steps bring the image",
                "Start 'holdfast run --local' inside the image?");
  if (cluster.nodes != 1 || cluster.spares != 0)
    log::info("cluster.nodes is 1 and cluster.spares is 0 on this machine, instead of {} and {}",
              cluster.nodes, cluster.spares);
  cluster.nodes = 1;
  cluster.spares = 0;
  if (cluster.ranks_per_node == 0 && !has_gpus) cluster.ranks_per_node = 1;
  loaded.config.slurm = {};
  loaded.config.slurm.comment_s = 0;  // a local run has no job that could show it
  return loaded.config;
}

int run_here(const config::RunConfig& config, const config::ClusterFacts& machine) {
  const std::string node = slurm::LocalCluster::node_name();
  const Preparation prepared =
      prepare(config, {}, {.on = {node}, .without = {}, .facts = machine, .batch_host = node});
  create_folders(prepared.run);
  slurm::ClusterCli slurm;
  const auto job = take_for_local_run(prepared.run, slurm);
  // Again, now that the directory is taken: another run may have written there since.
  check_run_dir(prepared.run, prepared.files);
  write_run_files(prepared.run, prepared.files);
  const std::string run = prepared.run.path.string();
  log::info("the run directory is {}; follow it with '{}'", run, slurm::shown({"holdfast", "watch", run}));
  slurm::LocalCluster cluster;
  const int code = monitor_job(prepared, {{node}, node, {}}, cluster, slurm::LocalCluster::job_env(job));
  if (code == static_cast<int>(Exit::transient))
    log::info("the run can be continued: '{}'", slurm::shown({"holdfast", "run", "--local", run}));
  return code;
}

}  // namespace holdfast::launcher

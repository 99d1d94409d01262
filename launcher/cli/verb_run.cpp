#include <unistd.h>

#include <algorithm>

#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/daemon/serve.hpp"
#include "launcher/cli/job_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/health/this_machine.hpp"
#include "launcher/job/job_monitor.hpp"
#include "launcher/job/local_run.hpp"
#include "launcher/job/preparation.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/job_env.hpp"
#include "slurm/local_cluster.hpp"
#include "slurm/tools.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/hide_memory.hpp"
#include "src/base/lock_pages.hpp"
#include "src/base/log.hpp"
#include "src/base/own_run.hpp"
#include "src/control/private_place.hpp"

namespace holdfast::launcher {
namespace {

struct AgentOptions {
  std::string dir, node, scratch;
  bool serve = false;
};

RunDir run_dir(const std::string& dir) { return {std::filesystem::absolute(dir).lexically_normal()}; }

/// The guardian finds the folder, as long as shared storage answers; whatever it starts is told.
Scratch scratch_of(const AgentOptions& options) {
  if (!options.scratch.empty()) return {options.scratch, options.node};
  const RunDir run = run_dir(options.dir);
  require_own_run(run);
  return {control::make_private(control::scratch_place(run), control::read_secret(run.secret())),
          options.node};
}

int advised(int code, const RunDir& run, const slurm::JobEnv& env) {
  if (code == static_cast<int>(Exit::transient) && !env.in_batch_script())
    log::warn("the run can be continued: 'holdfast run {}' in this or another allocation", run.path.string());
  return code;
}

int run_that_was_set_up(const RunDir& run, slurm::Cluster& cluster, const slurm::JobEnv& env) {
  auto facts = config::load_cluster(run.cluster().string());
  if (facts.name == local_machine)
    throw Error(Exit::usage, "the settings of " + run.path.string() + " are those of a local run",
                "they describe one machine",
                "Give the job file, or continue it with 'holdfast run --local'?");
  return advised(monitor_job(run, std::move(facts), cluster, env), run, env);
}

/// As `holdfast submit`, but in this allocation, for its nodes.
int set_up_and_run(const JobOptions& job, slurm::Cluster& cluster, const slurm::JobEnv& env) {
  const Allocation here = allocation(cluster, env);
  const Preparation prepared =
      prepare(job.load(static_cast<int>(env.nodes.size())).config, {},
              {.on = here.nodes, .without = {}, .facts = std::nullopt, .batch_host = here.batch_host});
  check_cluster_file(prepared.files.facts);
  if (is_done(prepared, env)) return 0;
  take_run_dir(prepared, env.job, cluster);
  return advised(monitor_job(prepared, here, cluster, env), prepared.run, env);
}

int run_locally(JobOptions job, bool is_run) {
  if (is_run) job.file = run_dir(job.file).config().string();
  const auto loaded = job.load(1);
  const auto machine = facts_of_this_machine(slurm::LocalCluster::node_name(),
                                             std::max(1, loaded.config.cluster.ranks_per_node));
  return run_here(on_one_node(loaded, has_gpus(machine)), machine);
}

int serve_node(const AgentOptions& options) {
  log::start("agent " + options.node);
  raise_descriptor_limit();
  return serve(run_dir(options.dir), scratch_of(options), ::getppid());
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("run",
                                  "Inside an allocation (salloc, a script of your own): keep an agent on "
                                  "every node until the run is over");
  auto job = std::make_shared<JobOptions>();
  auto local = std::make_shared<bool>(false);
  job->add_to(*verb);
  verb->add_flag(
      "--local", *local,
      "Run on this machine alone, without SLURM: one node, no spares; Ctrl-C saves and ends the run");
  verb->get_option("job")
      ->description(
          "Run directory that `holdfast submit` has created; or a job file: the run is set up first, as "
          "by submit. Without either, '-- PROGRAM ARGUMENT...' is run on all nodes of the allocation but the "
          "spares")
      ->type_name("RUN_DIR | JOB.toml");
  verb->callback([job, local, &exit_code] {
    log::start_in_background("run");
    hide_memory();
    lock_all_pages();  // its program lies on shared storage
    raise_descriptor_limit();
    slurm::find_tools();
    const bool is_run = std::filesystem::is_directory(job->file);
    if (is_run && job->any_set())
      throw Error(Exit::usage, "the settings of " + job->file + " cannot be changed",
                  "it is a run directory, and options apply to job files", "Give the job file?");
    if (is_run) require_own_run(run_dir(job->file));
    if (*local) {
      exit_code = run_locally(*job, is_run);
      return;
    }
    slurm::ClusterCli cluster;
    const auto env = slurm::job_env();
    if (env.components > 1)
      throw Error(Exit::usage, "Holdfast does not run in a heterogeneous job",
                  "each of its components is a job of its own, with other nodes",
                  "Ask for all nodes in one component?");
    exit_code =
        is_run ? run_that_was_set_up(run_dir(job->file), cluster, env) : set_up_and_run(*job, cluster, env);
  });
}

void add_agent(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("agent", "The daemon of a node; `holdfast run` starts it");
  auto options = std::make_shared<AgentOptions>();
  verb->add_option("RUN_DIR", options->dir, "The run directory")->required();
  verb->add_option("--node", options->node, "SLURM's name of this node; else the one of this step's node");
  verb->add_option("--scratch", options->scratch, "Its folder in the memory of the node")->group("");
  verb->add_flag("--serve", options->serve, "Be the serving process, which the guardian starts")->group("");
  verb->callback([options, &exit_code] {
    hide_memory();
    if (options->node.empty())
      options->node = slurm::inside_a_job() ? slurm::job_env().node : slurm::LocalCluster::node_name();
    if (options->serve) {
      exit_code = serve_node(*options);
    } else {
      log::start("guardian " + options->node);
      exit_code = guard(run_dir(options->dir), scratch_of(*options));
    }
  });
}

}  // namespace holdfast::launcher

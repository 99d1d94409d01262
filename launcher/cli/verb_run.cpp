#include "launcher/cli/verb_run.hpp"

#include "launcher/agent/agent.hpp"
#include "launcher/agent/guardian.hpp"
#include "launcher/agent/rank_shim.hpp"
#include "launcher/agent/remote_start.hpp"
#include "launcher/job/keeper.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

struct RunWords {
  std::string dir, node;
  bool serve = false;
};

RunDir run_dir(const std::string& dir) { return {std::filesystem::absolute(dir).lexically_normal()}; }

int serve(const RunWords& words) {
  die_with_guardian();
  log::start("agent " + words.node);
  control::Loop loop;
  return Agent(loop, run_dir(words.dir), words.node).serve();
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto* verb =
      app.add_subcommand("run", "Inside an allocation: keep an agent on every node until the run is over");
  auto words = std::make_shared<RunWords>();
  verb->add_option("RUN_DIR", words->dir, "The run directory that `holdfast submit` made")->required();
  verb->callback([words, &exit_code] {
    log::start("run");
    slurm::ClusterCli cluster;
    exit_code = keep(run_dir(words->dir), cluster);
  });
}

void add_agent(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("agent", "The daemon of a node; `holdfast run` starts it");
  auto words = std::make_shared<RunWords>();
  verb->add_option("RUN_DIR", words->dir, "The run directory")->required();
  verb->add_option("--node", words->node, "SLURM's name of this node")->required();
  verb->add_flag("--serve", words->serve, "Be the serving process (the guardian starts it)")->group("");
  verb->callback([words, &exit_code] {
    if (words->serve) {
      exit_code = serve(*words);
    } else {
      log::start("guardian " + words->node);
      exit_code = guard(run_dir(words->dir), words->node);
    }
  });
}

void add_spawn(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("spawn", "Start mpirun's daemon on a node")->group("");
  verb->prefix_command();
  verb->callback([verb, &exit_code] {
    auto words = verb->remaining();
    if (words.empty()) throw CLI::RequiredError("HOST");
    const std::string host = words.front();
    words.erase(words.begin());
    exit_code = remote_start(host, words);
  });
}

void add_start_rank(CLI::App& app, int& exit_code) {
  app.add_subcommand("start-rank", "Start a rank under mpirun")->group("")->callback([&exit_code] {
    exit_code = start_rank();
  });
}

}  // namespace holdfast::launcher

#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/cli/find_run.hpp"
#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/status_view.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {
void add_status(CLI::App& app, int& exit_code) {
  struct StatusOptions {
    std::string dir;
    bool json = false;
  };
  auto* verb =
      app.add_subcommand("status", "Show the progress of a run: job, step, nodes, attempts, checkpoints");
  auto options = std::make_shared<StatusOptions>();
  verb->add_option("RUN", options->dir, "The run directory, its name in runs/, or the job's id")->required();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->callback([options, &exit_code] {
    slurm::ClusterCli cluster;
    const RunDir run = find_run(options->dir, cluster);
    StatusFacts facts = facts_of(run);
    facts.job = job_facts(run, cluster);
    facts.now = unix_seconds();
    std::cout << (options->json ? status_json(facts).dump(2) + "\n" : status_text(facts));
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher

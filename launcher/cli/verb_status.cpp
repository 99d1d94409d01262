#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/status_view.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/clock.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/within.hpp"

namespace holdfast::launcher {
void add_status(CLI::App& app, int& exit_code) {
  struct StatusOptions {
    std::string dir;
    double timeout_s = 10;
    bool json = false;
  };
  auto* verb =
      app.add_subcommand("status", "Show the progress of a run: job, step, nodes, attempts, checkpoints");
  auto options = std::make_shared<StatusOptions>();
  verb->add_option("RUN", options->dir, "The run directory, its name in runs/, or the job's id")->required();
  verb->add_option("--timeout", options->timeout_s, "Give up when storage has not answered for so long")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber.description(""))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->callback([options, &exit_code] {
    const Millis limit(static_cast<std::int64_t>(options->timeout_s * 1000));
    constexpr std::chrono::seconds for_slurm{20};  // two questions, each with a deadline
    const RunDir run = within(limit + (slurm::may_be_job(options->dir) ? Millis(for_slurm) : Millis(0)),
                              options->dir, [name = options->dir] {
                                slurm::ClusterCli cluster;
                                return find_run(name, cluster);
                              });
    StatusFacts facts = within(limit, run.path.string(), [run] { return facts_of(run); });
    facts.job = within(limit + Millis(for_slurm), run.path.string(), [run] {
      slurm::ClusterCli cluster;
      return job_facts(run, cluster);
    });
    facts.now = unix_seconds();
    count_steps(facts);
    std::cout << (options->json ? json_text(status_json(facts), 2) + "\n" : status_text(facts));
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher

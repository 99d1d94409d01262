#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/job_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/rank_inputs.hpp"
#include "launcher/job/run_dir_setup.hpp"
#include "launcher/job/run_history.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/plan_text.hpp"
#include "launcher/plan/topology.hpp"
#include "slurm/hostlist.hpp"
#include "src/config/adapters.hpp"

namespace holdfast::launcher {
namespace {

struct PlanOptions {
  JobOptions job;
  std::string on;  ///< hostlist
  bool json = false, ranks = false;
};

void print_plan(const PlanOptions& options) {
  auto config = options.job.load().config;
  take_container_options(config);
  const auto facts = config::load_cluster(config.cluster.file);
  const auto model = config::model_of(config);
  config::check(config, model);
  const RunDir run = run_dir_of(config);
  config = config::resolve(with_lanes_of(run, std::move(config)), facts);
  const auto nodes = options.on.empty()
                         ? hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares)
                         : slurm::expand(options.on);
  Plan plan = make_plan(config, model, facts, nodes, std::nullopt);
  check_model(run, model);
  check_checkpoint(run, config, model);
  for (auto& warning : check_image(config, run, this_program())) plan.warnings.push_back(std::move(warning));
  for (const Error& absent : check_rank_inputs(config, model))
    plan.warnings.push_back(fmt::format("submit would refuse the job: {}", absent.what()));
  if (options.json) {
    std::cout << to_json(plan).dump(2) << "\n";
  } else {
    std::cout << to_text(plan);
    if (options.ranks) std::cout << "\n" << rank_table(plan);
  }
}

}  // namespace

void add_plan(CLI::App& app, int&) {
  auto* verb = app.add_subcommand(
      "plan", "Show placement, memory and cost of a job, and which losses it survives; needs no cluster");
  const auto options = std::make_shared<PlanOptions>();
  options->job.add_to(*verb);
  verb->add_option("-w,--nodelist", options->on, "Plan for these nodes instead of the cluster's first")
      ->type_name("HOSTLIST");
  verb->add_flag("--ranks", options->ranks, "Add a line for each rank");
  verb->add_flag("--json", options->json, "Print everything as JSON");
  verb->callback([options] { print_plan(*options); });
}

}  // namespace holdfast::launcher

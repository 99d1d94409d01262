#include "launcher/cli/verb_plan.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/cli/job_options.hpp"
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
  const auto config = options.job.load().config;
  const auto facts = config::load_cluster(config.cluster.file);
  const auto model = config::model_of(config);
  config::check(config, model);
  const auto nodes = options.on.empty()
                         ? hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares)
                         : slurm::expand(options.on);
  const Plan plan = make_plan(config, model, facts, nodes, std::nullopt);
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
      "plan", "Show what will run where, what it costs and what it survives; needs no cluster");
  const auto options = std::make_shared<PlanOptions>();
  options->job.add_to(*verb);
  verb->add_option("-w,--nodelist", options->on, "Plan for these nodes instead of the cluster's first")
      ->type_name("HOSTLIST");
  verb->add_flag("--ranks", options->ranks, "Add a line for each rank");
  verb->add_flag("--json", options->json, "Print everything as JSON");
  verb->callback([options] { print_plan(*options); });
}

}  // namespace holdfast::launcher

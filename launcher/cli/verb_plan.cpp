#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/cli/job_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/job/preparation.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/plan_text.hpp"
#include "slurm/environment.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

struct PlanOptions {
  JobOptions job;
  std::string on, without;          ///< host lists
  std::vector<std::string> sbatch;  ///< after "--"
  bool json = false, ranks = false;
};

void print_plan(PlanOptions options) {
  const auto sbatch = options.job.flags_of(options.sbatch);
  Look look =
      look_at(options.job.load().config, sbatch, {slurm::expand(options.on), slurm::expand(options.without)});
  look.problems.refuse_but_those_of_this_machine();
  Plan& plan = look.plan.value();
  for (const std::string& doubt : look.problems.doubts()) plan.warnings.push_back(doubt);
  if (const std::string left_out = slurm::left_out_for_sbatch(); !left_out.empty())
    plan.warnings.push_back(left_out);
  for (const Error& error : look.problems.of_this_machine())
    plan.warnings.push_back(fmt::format("submit would refuse the job: {}", error.what()));
  if (options.json) {
    std::cout << json_text(to_json(plan), 2) << "\n";
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
  verb->add_option("-x,--exclude", options->without, "Plan without these nodes")->type_name("HOSTLIST");
  verb->add_flag("--ranks", options->ranks, "Add a line for each rank");
  verb->add_flag("--json", options->json, "Print everything as JSON");
  verb->add_option("flags", options->sbatch, "After '--': further flags, as submit passes them to SLURM")
      ->type_name("-- FLAG");
  verb->callback([options] { print_plan(*options); });
}

}  // namespace holdfast::launcher

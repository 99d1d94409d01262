#include "launcher/cli/verb_drill.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/agent/caller.hpp"
#include "launcher/agent/programs.hpp"
#include "launcher/drill/live_field.hpp"
#include "launcher/drill/report.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "src/config/toml_document.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds inject_limit{5};

struct DrillOptions {
  std::string campaign, job, minipod, work, report;
  std::vector<std::string> sets, only;
  std::optional<std::uint64_t> seed;
  bool list = false;
};

void print_faults() {
  fmt::print("{:<24} {:<8} {:<11} {:<14} {}\n", "FAULT", "HAND", "TARGET", "MUST END", "WHAT IS BROKEN");
  for (const auto& f : faults())
    fmt::print("{:<24} {:<8} {:<11} {:<14} {}\n", f.name, name_of(f.hand), name_of(f.target),
               f.exit_code == 0 ? "same bits" : fmt::format("exit code {}", f.exit_code), f.breaks);
}

CampaignPlan chosen_campaign(const DrillOptions& options) {
  const fs::path file = config::find_config("drills", options.campaign);
  CampaignPlan campaign = read_campaign(config::read_document(file));
  if (!options.job.empty())
    campaign.job = config::find_config("jobs", options.job);
  else if (campaign.job.empty())
    throw Error(Exit::usage, "there is no job to drill", file.string() + " names none",
                "Name one behind the campaign?");
  else if (campaign.job.is_relative())
    campaign.job = file.parent_path() / campaign.job;
  if (!options.only.empty()) {
    for (const auto& name : options.only)
      if (std::none_of(campaign.cases.begin(), campaign.cases.end(),
                       [&](const DrillCase& c) { return c.name == name; }))
        throw Error(Exit::usage, "the campaign has no case " + name, file.string());
    std::erase_if(campaign.cases, [&](const DrillCase& c) {
      return std::find(options.only.begin(), options.only.end(), c.name) == options.only.end();
    });
  }
  if (options.minipod.empty())
    for (const auto& c : campaign.cases)
      for (const auto& blow : c.blows)
        if (blow.fault->hand == Hand::minipod)
          throw Error(Exit::usage, fmt::format("nobody here can deal {} (case {})", blow.fault->name, c.name),
                      "only a minipod's nodes can be broken so",
                      "--minipod DIR, or leave the case out with --only?");
  return campaign;
}

int drill(const DrillOptions& options) {
  if (options.list) {
    print_faults();
    return 0;
  }
  if (options.campaign.empty())
    throw Error(Exit::usage, "no campaign was given", "", "'holdfast drill --list' names what can be broken");
  const CampaignPlan campaign = chosen_campaign(options);
  const fs::path trainer = options.minipod.empty() ? find_program("holdfast-train") : fs::path();
  LiveField field({this_program(), trainer, campaign.job, options.sets, options.minipod, options.work});
  const std::string prefix = options.report.empty() ? "drill-" + campaign.name : options.report;
  const auto write = [&](const CampaignReport& report) {
    files::replace_atomically(prefix + ".md", report_text(report), 0644);
    files::replace_atomically(prefix + ".json", report_json(report).dump(1) + "\n", 0644);
  };
  const auto say = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const auto report = run_campaign(field, campaign, options.seed.value_or(campaign.seed), {say, write});
  fmt::print(
      "{}: {} of {} cases as they must be; {}.md, {}.json\n", report.passed() ? "passed" : "FAILED",
      std::count_if(report.cases.begin(), report.cases.end(), [](const auto& c) { return c.wrong.empty(); }),
      report.cases.size(), prefix, prefix);
  return static_cast<int>(report.passed() ? Exit::done : Exit::runtime);
}

}  // namespace

void add_drill(CLI::App& app, int& exit_code) {
  auto* verb =
      app.add_subcommand("drill", "Break things on purpose, and compare the end with an undisturbed run's");
  const auto options = std::make_shared<DrillOptions>();
  verb->add_option("campaign", options->campaign, "Campaign file, or the name of one in configs/drills")
      ->type_name("CAMPAIGN.toml");
  verb->add_option("job", options->job, "Job file instead of the campaign's")->type_name("JOB.toml");
  verb->add_option("--set", options->sets, "A setting of the job; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--seed", options->seed, "Of every choice, instead of the campaign's")->type_name("N");
  verb->add_option("--only", options->only, "Only this case; repeatable")
      ->type_name("CASE")
      ->allow_extra_args(false);
  verb->add_option("--minipod", options->minipod,
                   "The cluster is the minipod in DIR, and its nodes may be broken")
      ->type_name("DIR");
  verb->add_option("--work", options->work, "Folder of the runs (drills), on the shared file system")
      ->type_name("DIR");
  verb->add_option("--report", options->report, "Write PREFIX.md and PREFIX.json (drill-NAME)")
      ->type_name("PREFIX");
  verb->add_flag("--list", options->list, "Print what can be broken");
  verb->callback([options, &exit_code] { exit_code = drill(*options); });
}

void add_inject(CLI::App& app, int& exit_code) {
  struct Words {
    std::string run, node;
    control::Inject fault;
  };
  auto* verb = app.add_subcommand("inject", "One fault through the agent of a node; prints when");
  verb->group("");
  const auto words = std::make_shared<Words>();
  verb->add_option("RUN_DIR", words->run, "The run directory")->required();
  verb->add_option("NODE", words->node, "SLURM's name of the node")->required();
  verb->add_option("FAULT", words->fault.fault, "Its name")->required();
  verb->add_option("--rank", words->fault.rank, "Of this rank; without it, of the node")->type_name("RANK");
  verb->add_option("--seconds", words->fault.seconds, "How long it lasts")->type_name("S");
  verb->add_option("--seed", words->fault.seed, "Of its own choices")->type_name("N");
  verb->callback([words, &exit_code] {
    const double at = unix_seconds();
    const auto answer =
        inject(RunDir{fs::absolute(words->run).lexically_normal()}, words->node, words->fault, inject_limit);
    if (!answer.taken) throw Error(Exit::usage, "the fault was not taken", answer.says);
    fmt::print("{:.6f}\n", at);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/agent/daemon/caller.hpp"
#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/drill/live_testbed.hpp"
#include "launcher/drill/report.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/config/toml_document.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds inject_limit{5};

struct DrillOptions {
  std::string drill, job, minipod, work, report;
  std::vector<std::string> sets, only;
  std::optional<std::uint64_t> seed;
  bool list = false, json = false;
};

void print_faults() {
  std::cout << fmt::format("{:<24} {:<9} {:<11} {:<14} {}\n", "FAULT", "INJECTOR", "TARGET", "EXPECTED END",
                           "WHAT IS BROKEN");
  for (const auto& f : faults())
    std::cout << fmt::format(
        "{:<24} {:<9} {:<11} {:<14} {}\n", f.name, name_of(f.injector), name_of(f.target),
        f.exit_code == 0 ? "same bits" : fmt::format("exit code {}", f.exit_code), f.breaks);
}

void print_faults_as_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& f : faults())
    list.push_back({{"fault", f.name},
                    {"injector", name_of(f.injector)},
                    {"target", name_of(f.target)},
                    {"expected_exit_code", f.exit_code},
                    {"needs_spare", f.needs_spare},
                    {"seconds", f.seconds},
                    {"breaks", f.breaks}});
  std::cout << json_text(nlohmann::json{{"schema_version", 1}, {"faults", std::move(list)}}, 2) << "\n";
}

/// Why a fault cannot be injected, and what would help. `minipod`: its folder, or "".
std::optional<std::pair<const char*, const char*>> why_not(const Fault& fault,
                                                           const std::filesystem::path& minipod) {
  if (fault.injector != Injector::minipod) return std::nullopt;
  if (minipod.empty())
    return {{"only the minipod can inject it", "--minipod DIR, or leave the case out with --only?"}};
  const auto shape = minipod / "shape";  // how it was started
  const bool can_hang =
      files::is_there(shape) && files::read_text(shape).find("storage=fuse") != std::string::npos;
  if (std::string_view(fault.act) == "hang-shared" && !can_hang)
    return {{"the storage of this minipod cannot hang", "Start it with 'minipod up --storage fuse'?"}};
  return std::nullopt;
}

DrillPlan chosen_drill(const DrillOptions& options) {
  const fs::path file = config::find_config("drills", options.drill);
  DrillPlan drill = read_drill(config::read_document(file));
  if (!options.job.empty())
    drill.job = config::find_config("jobs", options.job);
  else if (drill.job.empty())
    throw Error(Exit::usage, "there is no job to drill", file.string() + " names none",
                "Name one after the drill file?");
  else if (drill.job.is_relative())
    drill.job = file.parent_path() / drill.job;
  if (!options.only.empty()) {
    for (const auto& name : options.only)
      if (std::none_of(drill.cases.begin(), drill.cases.end(),
                       [&](const DrillCase& c) { return c.name == name; }))
        throw Error(Exit::usage, "the drill file has no case " + name, file.string());
    std::erase_if(drill.cases, [&](const DrillCase& c) {
      return std::find(options.only.begin(), options.only.end(), c.name) == options.only.end();
    });
  }
  for (const auto& c : drill.cases)
    for (const auto& planned : c.faults)
      if (const auto why = why_not(*planned.fault, options.minipod))
        throw Error(Exit::usage,
                    fmt::format("{} (case {}) cannot be injected here", planned.fault->name, c.name),
                    why->first, why->second);
  return drill;
}

int drill(const DrillOptions& options) {
  if (options.list) {
    options.json ? print_faults_as_json() : print_faults();
    return 0;
  }
  if (options.drill.empty())
    throw Error(Exit::usage, "no drill file was given", "", "'holdfast drill --list' names the faults");
  const DrillPlan drill = chosen_drill(options);
  const fs::path trainer = options.minipod.empty() ? find_program("holdfast-train") : fs::path();
  LiveTestbed testbed({this_program(), trainer, drill.job, options.sets, options.minipod, options.work});
  const std::string prefix = options.report.empty() ? "drill-" + drill.name : options.report;
  const auto write = [&](const DrillReport& report) {
    files::replace_atomically(prefix + ".md", report_text(report), 0644);
    files::replace_atomically(prefix + ".json", report_json(report).dump(1) + "\n", 0644);
  };
  const auto say = [](const std::string& line) {
    std::cout << fmt::format("{}\n", line);
    std::fflush(stdout);
  };
  const auto report = run_drill(testbed, drill, options.seed.value_or(drill.seed), {say, write});
  std::cout << fmt::format("{}: {} of {} cases as expected; {}.md, {}.json\n",
                           report.passed() ? "passed" : "FAILED",
                           std::count_if(report.cases.begin(), report.cases.end(),
                                         [](const auto& c) { return c.differences.empty(); }),
                           report.cases.size(), prefix, prefix);
  return static_cast<int>(report.passed() ? Exit::done : Exit::runtime);
}

}  // namespace

void add_drill(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("drill", "Inject faults, and compare the end with an undisturbed run's");
  const auto options = std::make_shared<DrillOptions>();
  verb->add_option("drill", options->drill, "Drill file, or the name of one in configs/drills")
      ->type_name("DRILL.toml");
  verb->add_option("job", options->job, "Job file, instead of the one in the drill file")
      ->type_name("JOB.toml");
  verb->add_option("--set", options->sets, "A setting of the job; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--seed", options->seed, "Seed of every choice, instead of the one in the drill file")
      ->type_name("N");
  verb->add_option("--only", options->only, "Run only this case; repeatable")
      ->type_name("CASE")
      ->allow_extra_args(false);
  verb->add_option("--minipod", options->minipod,
                   "The cluster is the minipod in DIR, and its nodes may be broken")
      ->type_name("DIR");
  verb->add_option("--work", options->work, "Folder of the runs (drills), on the shared file system")
      ->type_name("DIR");
  verb->add_option("--report", options->report, "Write PREFIX.md and PREFIX.json (drill-NAME)")
      ->type_name("PREFIX");
  auto* list = verb->add_flag("--list", options->list, "Print the faults");
  verb->add_flag("--json", options->json, "Print them as JSON")->needs(list);
  verb->callback([options, &exit_code] { exit_code = drill(*options); });
}

void add_inject(CLI::App& app, int& exit_code) {
  struct InjectOptions {
    std::string run, node;
    control::Inject fault;
  };
  auto* verb =
      app.add_subcommand("inject", "Inject one fault through the agent of a node; prints the moment");
  verb->group("");
  const auto options = std::make_shared<InjectOptions>();
  verb->add_option("RUN_DIR", options->run, "The run directory")->required();
  verb->add_option("NODE", options->node, "SLURM's name of the node")->required();
  verb->add_option("FAULT", options->fault.fault, "Name of the fault")->required();
  verb->add_option("--rank", options->fault.rank, "Into this rank; without it, into the node")
      ->type_name("RANK");
  verb->add_option("--seconds", options->fault.seconds, "How long it lasts")->type_name("S");
  verb->add_option("--seed", options->fault.seed, "Seed of its choices")->type_name("N");
  verb->callback([options, &exit_code] {
    const double at = unix_seconds();
    const auto answer = inject(RunDir{fs::absolute(options->run).lexically_normal()}, options->node,
                               options->fault, inject_limit);
    if (!answer.taken) throw Error(Exit::usage, "the fault was not taken", answer.says);
    std::cout << fmt::format("{:.6f}\n", at);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher

#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/cli/find_run.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/status_view.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/error.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

/// The last complete line: the next one may be incomplete.
std::optional<json> last_line(const std::filesystem::path& file) {
  if (!files::fs::exists(file)) return std::nullopt;
  std::string text = files::read_text(file);
  text.resize(text.find_last_of('\n') == std::string::npos ? 0 : text.find_last_of('\n'));
  const json line = json::parse(text.substr(text.find_last_of('\n') + 1), nullptr, false);
  return line.is_object() ? std::optional(line) : std::nullopt;
}

StatusFacts gather(const RunDir& run) {
  StatusFacts facts;
  const auto config = config::load(run.config()).config;
  facts.name = config.run.name;
  facts.steps = config.train.steps;
  facts.own_trainer = own_trainer(config.rank);
  facts.state = replay(run);
  facts.term = highest_valid_term(run);
  if (files::fs::exists(run.nodes())) facts.roster = read_roster(run);
  facts.last_step = last_line(facts.own_trainer ? run.metrics() : run.reported_metrics());
  facts.kind = config.rank.kind;
  return facts;
}

}  // namespace

void add_status(CLI::App& app, int& exit_code) {
  struct StatusOptions {
    std::string dir;
    bool json = false;
  };
  auto* verb = app.add_subcommand("status", "Show the progress of a run: step, nodes, attempts, checkpoints");
  auto options = std::make_shared<StatusOptions>();
  verb->add_option("RUN", options->dir, "The run directory, or the job's id")->required();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->callback([options, &exit_code] {
    slurm::ClusterCli cluster;
    const StatusFacts facts = gather(find_run(options->dir, cluster));
    std::cout << (options->json ? status_json(facts).dump(2) + "\n" : status_text(facts));
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher

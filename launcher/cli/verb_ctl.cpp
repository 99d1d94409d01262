#include <fmt/format.h>

#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/cli/order_from_here.hpp"
#include "launcher/cli/verbs.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using control::Order;
using nlohmann::json;

struct OrderVerb {
  const char* name;
  Order::Verb verb;
  const char* help;
};
constexpr std::array verb_table = {
    OrderVerb{"save", Order::Verb::save, "Save a checkpoint after the current step"},
    OrderVerb{"stop", Order::Verb::stop, "Save after the current step, then end the run and its job"},
    OrderVerb{"pause", Order::Verb::pause, "Hold between two steps; nodes and memory are kept"},
    OrderVerb{"resume", Order::Verb::resume, "Continue after a pause"},
    OrderVerb{"evict", Order::Verb::evict,
              "Take a node out after the current step; a spare takes its slot, no step is lost"},
    OrderVerb{"spares", Order::Verb::spares, "List all nodes: slot or spare, fitness, past failures"},
};

struct CtlOptions {
  std::string run, node;
  bool json = false;
};

std::string text_of_spares(const json& nodes) {
  constexpr const char* line = "{:<16} {:<8} {:<13} {:<9} {:>8} {:>7} {:>9}  {}\n";
  std::string text = fmt::format(fmt::runtime(line), "node", "role", "scalable unit", "fitness", "failures",
                                 "earlier", "heard", "record");
  const auto word = [](const json& n, const char* key) {
    const auto it = n.find(key);
    return it == n.end() || it->is_null() ? std::string("-")
           : it->is_string()              ? it->get<std::string>()
                                          : it->dump();
  };
  for (const auto& n : nodes) {
    const int slot = typed<int>(n, "slot").value_or(-1);
    text += fmt::format(fmt::runtime(line), word(n, "node"),
                        slot >= 0 ? fmt::format("slot {}", slot) : word(n, "role"), word(n, "scalable_unit"),
                        word(n, "fitness"), word(n, "failures"), word(n, "past_failures"), word(n, "heard_s"),
                        typed<std::string>(n, "record").value_or("").empty() ? "-" : word(n, "record"));
  }
  return text;
}

int give(const OrderVerb& verb, const CtlOptions& options) {
  slurm::ClusterCli cluster;
  const RunDir run = find_run(options.run, cluster);
  const control::OrderTaken answer = order_from_here(run, verb.verb, options.node);
  const json nodes = verb.verb == Order::Verb::spares ? json_from(answer.says) : json();
  if (options.json) {
    json out = {{"schema_version", 1}, {"order", verb.name}, {"taken", answer.taken}};
    if (nodes.is_array())
      out["nodes"] = nodes;
    else
      out["says"] = answer.says;
    std::cout << json_text(out, 2) << '\n';
  } else if (answer.taken) {
    std::cout << (nodes.is_array() ? text_of_spares(nodes) : answer.says + "\n");
  }
  if (answer.taken) return 0;
  if (!options.json)
    throw Error(Exit::usage, fmt::format("the run has refused the order '{}'", verb.name), answer.says);
  return static_cast<int>(Exit::usage);
}

}  // namespace

void add_ctl(CLI::App& app, int& exit_code) {
  auto* ctl =
      app.add_subcommand("ctl", "Give orders to a run: save, stop, pause, resume, evict a node, list spares");
  auto options = std::make_shared<CtlOptions>();
  ctl->add_option("RUN", options->run, "The run directory, its name in runs/, or the job's id")->required();
  ctl->require_subcommand(1);
  for (const auto& verb : verb_table) {
    auto* one = ctl->add_subcommand(verb.name, verb.help);
    if (verb.verb == Order::Verb::evict)
      one->add_option("NODE", options->node, "SLURM's name of the node")->required();
    one->add_flag("--json", options->json, "Print JSON");
    one->callback([options, &verb, &exit_code] { exit_code = give(verb, *options); });
  }
}

}  // namespace holdfast::launcher

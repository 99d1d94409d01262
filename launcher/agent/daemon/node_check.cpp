#include "launcher/agent/daemon/node_check.hpp"

#include <signal.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "slurm/environment.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/text.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {

using control::NodeHealth;

namespace {

constexpr std::chrono::seconds check_limit{15};
constexpr std::size_t hash_digits = 16;

/// The node may be training.
Command low_priority(std::vector<std::string> argv, std::vector<std::string> environment) {
  Command command;
  command.argv = std::move(argv);
  command.environment = std::move(environment);
  command.when_parent_ends = SIGKILL;
  command.low_priority = true;
  return command;
}

NodeHealth run_doctor(const RunDir& run, const std::vector<std::string>& environment) {
  try {
    const Finished done = holdfast::run(low_priority({this_program().string(), "doctor", "--fast", "--json",
                                                      "--cluster", run.cluster().string()},
                                                     environment),
                                        check_limit);
    return read_health(done.out, done.timed_out ? "the check did not end in 15 s" : "");
  } catch (const Error& error) {
    return read_health("", error.what());
  }
}

std::string run_probe(const std::vector<std::string>& environment) {
  try {
    const Finished done = holdfast::run(
        low_priority({find_program("holdfast-train").string(), "--probe"}, environment), check_limit);
    if (done.status == 0) return read_probe(done.out);
    log::warn("the numerics probe failed: {}", first_line(done.err));
  } catch (const Error& error) {
    log::warn("the numerics probe cannot run: {}", error.what());
  }
  return "";
}

/// One that is critical or a warning.
std::optional<NodeHealth::Finding> bad_finding(const nlohmann::json& entry) {
  for (const char* key : {"check", "fitness", "says"})
    if (!entry.is_object() || !entry.contains(key) || !entry[key].is_string()) return std::nullopt;
  const auto fitness = control::fitness_called(entry["fitness"].get<std::string>());
  if (fitness != NodeHealth::Fitness::critical && fitness != NodeHealth::Fitness::warning)
    return std::nullopt;
  return NodeHealth::Finding{entry["check"], *fitness, entry["says"]};
}

control::StartRanks no_attempt(int ranks_per_node) {
  control::StartRanks order;
  order.ranks_per_node = ranks_per_node;
  return order;
}

}  // namespace

NodeChecker::NodeChecker(control::Loop& loop, RunDir run, const config::ClusterFacts& cluster,
                         const config::Rank& rank, int ranks_per_node)
    : run_(std::move(run)),
      environment_(attempt_environment(run_, "", no_attempt(ranks_per_node), cluster, rank,
                                       slurm::rank_environment())),
      probes_(config::promises_of(rank).trains_as_set),
      worker_(loop) {
  // The check is not a process of an attempt, and must not be ended as one.
  std::erase_if(environment_, [](const std::string& entry) { return entry.starts_with("HOLDFAST_"); });
}

void NodeChecker::check(bool numerics, std::function<void(const NodeHealth&)> then) {
  if (std::exchange(busy_, true)) return;
  // The doctor's result is not kept waiting: ranks may start when all nodes have it.
  worker_.ask([run = run_, environment = environment_] { return run_doctor(run, environment); },
              [this, numerics, then = std::move(then)](NodeHealth health) {
                health.numerics = numerics_;
                then(health);
                busy_ = numerics;
                if (numerics) prepare(std::move(health), then);
              });
}

/// A spare that may be promoted soon: also brings the entries of the checkpoints into memory.
void NodeChecker::prepare(NodeHealth health, std::function<void(const NodeHealth&)> then) {
  const bool probe = probes_ && numerics_.empty();
  worker_.ask(
      [folder = run_.checkpoints(), environment = environment_, probe] {
        files::list(folder);
        return probe ? run_probe(environment) : std::string();
      },
      [this, probe, health = std::move(health), then = std::move(then)](const std::string& hash) mutable {
        busy_ = false;
        if (!probe) return;
        numerics_ = health.numerics = hash;
        then(health);
      });
}

NodeHealth read_health(const std::string& text, const std::string& trouble) {
  NodeHealth health;
  const auto json = json_from(text);
  const std::string name =
      json.is_object() && json.contains("fitness") && json["fitness"].is_string() ? json["fitness"] : "";
  const auto fitness = control::fitness_called(name);
  if (!fitness) {
    health.why = trouble.empty() ? "the output of the check cannot be read" : trouble;
    return health;
  }
  health.fitness = *fitness;
  if (json.contains("why") && json["why"].is_string()) health.why = json["why"];
  if (!json.contains("findings") || !json["findings"].is_array()) return health;
  for (const auto& entry : json["findings"])
    if (const auto finding = bad_finding(entry); finding && health.findings.size() < NodeHealth::max_findings)
      health.findings.push_back(*finding);
  return health;
}

std::string read_probe(const std::string& text) {
  for (const auto line : lines_of(text)) {
    const std::size_t digits = std::min(line.find_first_not_of("0123456789abcdef"), line.size());
    if (digits == hash_digits && (line.size() == digits || line[digits] == ' '))
      return std::string(line.substr(0, digits));
  }
  return "";
}

}  // namespace holdfast::launcher

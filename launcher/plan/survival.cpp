#include "launcher/plan/survival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "launcher/plan/host_memory.hpp"
#include "launcher/plan/units.hpp"
#include "src/base/units.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/snapshot_buffers.hpp"

namespace holdfast::launcher {
namespace {

/// On how many nodes each piece of state is held at least; ranks that hold the same have the same place in
/// their shard groups, and under hfsdp nobody holds the optimizer state of another.
int nodes_of_a_piece(const Plan& plan) {
  if (plan.strategy == config::Strategy::hfsdp && plan.replicas() > 1) return 1;
  int fewest = plan.active;
  for (int place = 0; place < plan.group_size; ++place) {
    std::set<int> nodes;
    for (const int rank : plan.replica_group(place)) nodes.insert(rank / plan.ranks_per_node);
    fewest = std::min(fewest, static_cast<int>(nodes.size()));
  }
  return fewest;
}

std::string where_from(const std::string& level) {
  if (level == "local") return "from the local level";
  if (level == "peer") return "from its replicas on other nodes";
  if (level == "partner") return "from the copy on another node";
  return "from the shared file system";
}

/// The shared level, as it is without or beyond the others.
SurvivedLoss shared(std::string loss, const config::RunConfig& config) {
  const auto& c = config.checkpoint;
  return {std::move(loss), "shared", c.every > 0 ? c.every : config.train.steps};
}

std::string sentence(const SurvivedLoss& loss, const config::RunConfig& config) {
  if (loss.level == "shared" && config.checkpoint.every == 0)
    return fmt::format("{}: starts again from step 0 (up to {} steps): checkpoint.every is 0", loss.loss,
                       loss.steps);
  return fmt::format("{}: at most {} again, {}", loss.loss, count_text(loss.steps, "step"),
                     where_from(loss.level));
}

}  // namespace

LocalPlan local_plan_of(const Plan& plan, const config::RunConfig& config) {
  const auto& c = config.checkpoint;
  LocalPlan out;
  if (c.local == "none") return out;
  out.folder = c.local == "auto" ? "/dev/shm" : c.local;
  out.every = c.local_every;
  if (c.partner == config::Partner::automatic && plan.active > 1 && nodes_of_a_piece(plan) == 1)
    out.partner_every = c.partner_every;
  const int buffers =
      config::snapshot_buffers({.local = true, .rarer_partner_copies = out.partner_every > out.every});
  const int copies = out.partner_every > 0 ? 2 : 0;
  const auto& s = plan.memory.state;
  out.node_bytes = (buffers + copies) * (s.parameters + s.optimizer) * plan.ranks_per_node;
  return out;
}

std::vector<std::string> program_says(const config::RunConfig& config) {
  using config::Reports;
  const auto promises = config::promises_of(config.rank);
  if (promises.always_reports()) return {};
  const std::string command = fmt::format("{}", fmt::join(config.rank.command, " "));
  if (promises.reports == Reports::expected)
    return {command,
            "it speaks to its agents: its steps, hangs and saves are known, and it follows all orders"};
  const int drain_s = config.checkpoint.drain_s;
  if (promises.saves_on_sigterm)
    return {command, "it saves on SIGTERM, and its steps, hangs and saves are not known",
            fmt::format("ctl stop and evict send SIGTERM and give it checkpoint.drain_s = {} s; save and "
                        "pause are refused",
                        drain_s)};
  return {
      command,
      fmt::format("{}its steps, hangs and saves are not known",
                  promises.reports == Reports::perhaps ? "until it speaks to its agents, " : ""),
      fmt::format(
          "ctl stop sends SIGTERM and gives it checkpoint.drain_s = {} s; save, pause and evict are refused",
          drain_s)};
}

Survival survival_of(const Plan& plan, const config::RunConfig& config, const config::ClusterFacts& facts) {
  Survival s;
  const LocalPlan& local = plan.local;
  s.nodes_lost = plan.spares;
  if (facts.node_mttf_hours > 0) s.hours_between_losses = facts.node_mttf_hours / plan.active;

  s.says.push_back(plan.spares == 0
                       ? "no lost node within the job: there are no spares"
                       : count_text(plan.spares, "lost node") + ", one after another or at once");
  if (const auto promises = config::promises_of(config.rank); !promises.trains_as_set) {
    s.says.push_back("what the program has done since it saved last is done again after each loss");
    const bool may_speak = promises.reports >= config::Reports::perhaps;
    if (const auto bytes = buffers_of_a_rank(plan, config, facts); bytes && may_speak)
      s.says.push_back(
          fmt::format("with snapshot buffers, in which each rank may keep {}, no more than its last step",
                      size_text(*bytes)));
    return s;
  }
  const bool on = !local.folder.empty();
  const int held_on = nodes_of_a_piece(plan);
  const std::string processes = "failed or hung processes, up to supervise.max_restarts",
                    node = "a lost node";
  s.losses.push_back(on ? SurvivedLoss{processes, "local", local.every} : shared(processes, config));
  if (on && held_on > 1) {
    // More nodes than there are spares end the job, and with it the local level.
    const int at_once = std::min(held_on - 1, std::max(1, plan.spares));
    s.losses.push_back(
        {at_once > 1 ? fmt::format("up to {} lost nodes at once", at_once) : node, "peer", local.every});
    if (plan.spares >= held_on)
      s.losses.push_back(shared(held_on == plan.active
                                    ? fmt::format("all {} active nodes lost at once", plan.active)
                                    : fmt::format("{} nodes that hold the same lost at once", held_on),
                                config));
  } else if (local.partner_every > 0) {
    s.losses.push_back({node, "partner", local.partner_every});
    s.losses.push_back(shared("a node lost together with the one that keeps its copy", config));
  } else {
    s.losses.push_back(shared(node, config));
  }
  s.losses.push_back(shared("the whole job", config));

  for (const SurvivedLoss& loss : s.losses) s.says.push_back(sentence(loss, config));
  return s;
}

std::vector<std::string> when_short_says(const Plan& plan, const config::Supervise& limits) {
  using config::WhenShort;
  const Shrinking& s = plan.shrinking;
  const std::string or_else = limits.when_short == WhenShort::stop || limits.when_short == WhenShort::shrink
                                  ? "the run ends with exit code 5"
                                  : "the run goes back into the queue";
  if (s.together == 0) return {or_else + ": no smaller world would hold all of the state in whole replicas"};
  const int left = s.nodes - s.together;
  const double slower = slowdown(s, left);
  const double queue_s = requeue_hold_s + requeue_start_s;
  std::vector<std::string> out;
  if (limits.min_nodes <= 0 || left < limits.min_nodes)
    out.push_back(
        fmt::format("{}: supervise.min_nodes = {} allows no smaller world", or_else, limits.min_nodes));
  else if (limits.when_short == WhenShort::shrink)
    out.push_back(fmt::format("the run shrinks, down to {}", count_text(limits.min_nodes, "node")));
  else if (limits.when_short == WhenShort::automatic)
    out.push_back(
        fmt::format("the run shrinks when less than {} are left, else it goes back into the "
                    "queue: {} and the wait",
                    duration_text(queue_s / std::max(slower - 1, 1e-3)), duration_text(queue_s)));
  else
    out.push_back(or_else);
  if (!plan.program.empty()) {
    out.push_back(fmt::format("on {} the program has {} in place of {}", count_text(left, "node"),
                              count_text(left * s.ranks_per_node, "rank"), plan.world()));
    return out;
  }
  out.push_back(fmt::format(
      "on {} each step takes {:.2f} times as long: {} micro-batches over {}, the same bits",
      count_text(left, "node"), slower, plan.micro_batches(), count_text(left * s.ranks_per_node, "rank")));
  Shrinking better = s;
  better.parts = plan.micro_batches() / s.group;  // a lane for each micro-batch
  if (better.parts > s.parts && slowdown(better, left) < slower - 1e-9)
    out.push_back(fmt::format("without train.lanes it would be {:.2f} times", slowdown(better, left)));
  return out;
}

}  // namespace holdfast::launcher

// A plan is made in this order: the sizes of a rank and of a node, which must fit (if they do not, the Error
// names the smallest change with which they do); which of the nodes are active and which are spares, the
// batch host being a spare where one is wanted; where ranks go, with their GPU and NIC; then what follows
// from all of it: how long a step takes, which losses the run survives, what a smaller world would be, the
// environment of ranks, and warnings. Nothing here asks SLURM or reads a file.
#include "launcher/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "launcher/plan/fit.hpp"
#include "launcher/plan/memory.hpp"
#include "launcher/plan/spares.hpp"
#include "launcher/plan/survival.hpp"
#include "launcher/plan/topology.hpp"
#include "launcher/plan/units.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

using config::ClusterFacts;
using config::RunConfig;

void check_ranks_per_node(int ranks_per_node, const ClusterFacts& facts) {
  if (ranks_per_node > facts.gpus_per_node)
    throw Error(Exit::impossible, fmt::format("{} ranks do not fit a node", ranks_per_node),
                fmt::format("a node of {} has {} {}", facts.name, facts.gpus_per_node,
                            facts.gpu == "none" ? "places for ranks" : "GPUs"),
                fmt::format("Use ranks_per_node = {}?", facts.gpus_per_node));
}

/// Active nodes by scalable unit and name, so that neighbours in a ring share one; then the spares in the
/// same order.
void place_nodes(Plan& plan, const ClusterFacts& facts, const std::vector<std::string>& nodes,
                 const std::string& batch_host) {
  const auto units = by_scalable_unit(facts, nodes);
  const auto spares = spread_spares(units, plan.spares, batch_host);
  const std::set<std::string> spare_names(spares.begin(), spares.end());
  for (const bool spare : {false, true}) {
    for (const auto& unit : units) {
      for (const auto& node : unit.nodes) {
        if (spare_names.contains(node) != spare) continue;
        plan.nodes.push_back(
            {node, unit.scalable_unit, spare ? -1 : static_cast<int>(plan.nodes.size()), node == batch_host});
      }
    }
  }
  const auto all = static_cast<int>(plan.nodes.size());
  const auto host =
      std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlannedNode& n) { return n.batch_host; });
  const int host_index = host == plan.nodes.end() ? -1 : static_cast<int>(host - plan.nodes.begin());
  if (host_index >= 0) plan.leaders.push_back(host_index);
  for (int i = 0; i < all; ++i) {
    const int node = (plan.active + i) % all;  // spares, then active nodes by slot
    if (node != host_index) plan.leaders.push_back(node);
  }
}

void place_ranks(Plan& plan, const ClusterFacts& facts) {
  for (int rank = 0; rank < plan.world(); ++rank) {
    const int local = rank % plan.ranks_per_node;
    const auto& gpu = facts.gpus.at(local);
    plan.ranks.push_back({rank, rank / plan.ranks_per_node, local, rank / plan.group_size,
                          rank % plan.group_size, gpu.gpu, gpu.nic, gpu.numa, gpu.rail});
  }
}

/// The cluster file's variables, those that follow from its tables, then the job's, which win.
std::vector<std::string> environment_of(const RunConfig& config, const ClusterFacts& facts,
                                        int ranks_per_node) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& entry) {
    const auto name = entry.substr(0, entry.find('=') + 1);
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const std::string& other) { return other.starts_with(name); });
    if (same == out.end())
      out.push_back(entry);
    else
      *same = entry;
  };
  std::string devices;
  for (int local = 0; local < ranks_per_node; ++local) {
    const auto& nic = facts.gpus.at(local).nic;
    if (!nic.empty()) devices += (devices.empty() ? "" : ",") + nic;
  }
  if (facts.gpu != "none") {
    if (!devices.empty()) add("NCCL_IB_HCA==" + devices);  // a leading '=' asks for exact names
    add("NCCL_SOCKET_IFNAME==" + facts.control_interface);
  }
  for (const auto& entry : facts.environment) add(entry);
  for (const auto& entry : config.rank.environment) add(entry);
  return out;
}

/// The size of segments that sbatch is asked for; 0: it is not, or it is no number.
int segment_of(const RunConfig& config) {
  constexpr std::string_view option = "--segment=";
  int size = 0;
  for (const std::string& word : slurm::joined(config.slurm.extra))
    if (word.starts_with(option))
      std::from_chars(word.data() + option.size(), word.data() + word.size(), size);
  return size;
}

void warn(Plan& plan, const RunConfig& config) {
  const auto say = [&](std::string text) { plan.warnings.push_back(std::move(text)); };
  if (plan.spares < config.cluster.spares)
    say(fmt::format("{} of {} spares: the allocation has {} nodes", plan.spares, config.cluster.spares,
                    plan.nodes.size()));
  const int asked = config.cluster.nodes + config.cluster.spares;
  if (const int segment = segment_of(config); segment > 0 && asked % segment != 0)
    say(fmt::format("--segment={} does not divide the {} nodes of the job: with {} spares it does", segment,
                    asked, config.cluster.spares + segment - asked % segment));
  std::map<std::string, int> spares_of, active_of;
  for (const auto& node : plan.nodes) {
    ++(node.slot < 0 ? spares_of : active_of)[node.scalable_unit];
    if (node.batch_host && node.slot >= 0)
      say(fmt::format(
          "the batch host {} is active since there are no spares: its loss takes the batch script along",
          node.name));
    if (node.scalable_unit.empty())
      say(fmt::format("node {} is in no scalable unit of cluster {}", node.name, plan.cluster));
  }
  if (plan.spares > 1 && spares_of.size() == 1 && active_of.size() > 1)
    say(fmt::format("all spares share scalable unit {}: its loss leaves none", spares_of.begin()->first));
  if (plan.group_size > plan.ranks_per_node ? plan.group_size % plan.ranks_per_node != 0
                                            : plan.ranks_per_node % plan.group_size != 0)
    say(fmt::format(
        "shard groups of {} ranks cross nodes of {} ranks unevenly: replica peers do not share a rail",
        plan.group_size, plan.ranks_per_node));
}

/// Throws Error as make_plan() does, but for the nodes. No node and no rank has a place yet.
Plan sizes_of(const RunConfig& config, const config::ModelShape& model, const ClusterFacts& facts) {
  config::check(config, model);
  if (config::promises_of(config.rank).trains_as_set && config::computes_on_gpus(config, facts))
    config::check_gpu(config, model);
  check_ranks_per_node(config.cluster.ranks_per_node, facts);
  Plan plan;
  plan.job = config.run.name;
  plan.cluster = facts.name;
  plan.model = model.name;
  plan.program = program_says(config);
  plan.image = config.container.image;
  plan.strategy = config.shard.strategy;
  plan.precision = config.precision;
  plan.active = config.cluster.nodes;
  plan.spares = config.cluster.spares;
  plan.ranks_per_node = config.cluster.ranks_per_node;
  plan.group_size = config::shard_group_of(config, plan.world());
  plan.global_batch = config.train.global_batch;
  plan.micro_batch = config.train.micro_batch;
  plan.lanes = config.train.lanes;
  plan.sequence = config.train.sequence;
  plan.steps = config.train.steps;
  plan.parameters = config::parameters_of(model);
  plan.memory = memory_of(config, model, facts, plan.group_size, plan.replicas());
  plan.checkpoint_bytes = (4 + 2 * bytes_of(config.precision.moments)) * config::trained_parameters_of(model);
  plan.checkpoint_every = config.checkpoint.every;
  if (facts.storage_write_bytes_s > 0)
    plan.checkpoint_floor_s = static_cast<double>(plan.checkpoint_bytes) / facts.storage_write_bytes_s;
  plan.local = local_plan_of(plan, config);
  plan.host = host_memory_of(plan, config, facts);
  check_fit(plan, config, facts);
  return plan;
}

/// As sizes_of(), and an error says what would fit.
Plan sizes_that_fit(const RunConfig& config, const config::ModelShape& model, const ClusterFacts& facts) {
  try {
    return sizes_of(config, model, facts);
  } catch (const DoesNotFit& refused) {
    const auto try_plan = [&](const RunConfig& changed) -> std::optional<Plan> {
      try {
        const config::Cluster& wanted = changed.cluster;
        if (wanted.nodes > config.cluster.nodes) hypothetical_nodes(facts, wanted.nodes, wanted.spares);
        return sizes_of(config::resolve(changed, facts), model, facts);
      } catch (const Error&) {
        return std::nullopt;
      }
    };
    throw Error(refused.exit(), refused.problem(), refused.why(),
                smallest_change(refused, config, facts, try_plan));
  }
}

}  // namespace

std::vector<int> Plan::shard_group(int g) const {
  std::vector<int> out(group_size);
  for (int i = 0; i < group_size; ++i) out[i] = g * group_size + i;
  return out;
}

std::vector<int> Plan::replica_group(int place) const {
  std::vector<int> out;
  for (int rank = place; rank < world(); rank += group_size) out.push_back(rank);
  return out;
}

RunConfig with_copies_that_fit(const RunConfig& config, const config::ModelShape& model,
                               const ClusterFacts& facts) {
  const int most = config.cluster.nodes,
            least = config.supervise.min_nodes > 0 ? std::min(config.supervise.min_nodes, most) : most;
  const bool whole = config::shard_group_of(config, most * config.cluster.ranks_per_node) == 1;
  RunConfig kept = config;
  kept.shard.keep_gathered = "all";
  kept.shard.keep_across_micro_steps = true;
  if (!whole || !config::keeps_copies(kept) || facts.gpu_memory_bytes == 0) return config;
  const auto fits = [&](RunConfig changed, int nodes) {
    changed.cluster.nodes = nodes;
    try {
      sizes_of(changed, model, facts);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (int nodes = most; nodes >= least; --nodes)
    if (!fits(kept, nodes) && (nodes == most || fits(config, nodes))) return config;
  return kept;
}

Plan make_plan(const RunConfig& given, const config::ModelShape& model, const ClusterFacts& facts,
               const std::vector<std::string>& nodes, const std::optional<std::string>& batch_host) {
  const RunConfig config = config::resolve(given, facts);
  Plan plan = sizes_that_fit(config, model, facts);
  const auto have = static_cast<int>(nodes.size());
  if (have < config.cluster.nodes)
    throw Error(Exit::impossible,
                fmt::format("{} active nodes are wanted but there are {}", config.cluster.nodes, have),
                have == 0 ? "" : slurm::compress(nodes), "Wait for a larger allocation, or use fewer nodes?");
  plan.hypothetical = !batch_host;
  plan.spares = std::min(config.cluster.spares, have - config.cluster.nodes);

  auto used = nodes;
  const std::string host = batch_host.value_or(*std::min_element(nodes.begin(), nodes.end(), name_before));
  if (const auto at = std::find(used.begin(), used.end(), host); at != used.end())
    std::rotate(used.begin(), at, at + 1);
  used.resize(plan.active + plan.spares);
  place_nodes(plan, facts, used, host);
  place_ranks(plan, facts);
  plan.forecast = forecast_of(config, model, facts, plan.world(), plan.group_size);
  plan.survival = survival_of(plan, config, facts);
  plan.shrinking = shrinking_of(config);
  plan.when_short = when_short_says(plan, config.supervise);
  plan.environment = environment_of(config, facts, plan.ranks_per_node);
  warn(plan, config);
  return plan;
}

}  // namespace holdfast::launcher

// Two questions. check_fit() asks whether a plan fits: it adds up the parts of a rank, then those of a node
// in host memory, then those in /dev/shm, and throws DoesNotFit for the first sum that is too large. A
// capacity of 0 is not known, and is not checked.
//
// smallest_change() answers what to do. A ladder has a Rung for each kind of change, with the smallest first.
// first_that_fits() tries every single change in the ladder's order, then keeps the strongest one of the
// first rung and tries the others beside it, and so on. Three ladders are tried, each longer than the one
// before: settings, more nodes, and what changes the results. At last changes without which it fits, too, are
// taken out again. Each try plans with changed settings through `try_plan`; nothing is estimated here, so the
// sentence only names what does fit.
#include "launcher/plan/fit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/plan.hpp"
#include "src/base/units.hpp"
#include "src/config/choices.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

using config::RunConfig;

struct FitPart {
  std::string name;
  std::int64_t bytes = 0;
};

std::int64_t sum_of(const std::vector<FitPart>& parts) {
  std::int64_t sum = 0;
  for (const FitPart& part : parts) sum += part.bytes;
  return sum;
}

/// The largest first.
std::string list_of(std::vector<FitPart> parts) {
  std::ranges::stable_sort(parts, std::ranges::greater(), &FitPart::bytes);
  std::string list;
  for (const FitPart& part : parts)
    if (part.bytes > 0)
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", part.name, size_text(part.bytes));
  return list;
}

/// Without a GPU, what a rank may have is its share of the node's memory, and so is /dev/shm. One snapshot
/// buffer is the state itself; those on a disk are not counted here.
std::int64_t memory_of_snapshots(const Plan& plan, const config::ClusterFacts& facts) {
  const bool on_disk = !plan.local.folder.empty() && !plan.local.folder.starts_with("/dev/shm");
  if (facts.gpu != "none" || on_disk) return 0;
  return std::max<std::int64_t>(
      0, (plan.host.bytes_of("snapshot buffers") + plan.host.bytes_of("partner copies") - plan.host.state) /
             plan.ranks_per_node);
}

std::vector<FitPart> parts_of_rank(const Plan& plan, const config::ClusterFacts& facts) {
  const Memory& m = plan.memory;
  const StateBytes& s = m.state;
  return {{"optimizer state", s.optimizer - m.offloaded},
          {"parameters", s.parameters + s.copies},
          {"frozen weights", s.frozen},
          {"gradient sums", s.accumulators},
          {"gathered units", m.gathered},
          {"gradients of a micro-batch", m.gradients},
          {"activations", m.activations},
          {"scratch memory of attention", m.attention},
          {"driver and libraries", m.reserved},
          {"snapshots", memory_of_snapshots(plan, facts)}};
}

void check_node(const HostMemory& host, bool in_shm, const std::string& cluster) {
  const std::int64_t needed = in_shm ? host.total_in_shm() : host.total(),
                     have = in_shm ? host.shm_capacity : host.capacity;
  if (have == 0 || needed <= have) return;
  std::vector<FitPart> parts;
  for (const HostPart& part : host.parts)
    if (part.in_shm || !in_shm) parts.push_back({part.name, part.bytes});
  throw DoesNotFit(in_shm ? Limit::shm : Limit::node,
                   fmt::format("a node needs {} of {} but one of {} has {}", size_text(needed),
                               in_shm ? "/dev/shm" : "host memory", cluster, size_text(have)),
                   list_of(std::move(parts)));
}

/// As `--set` takes it, and what it does to the settings.
struct Change {
  std::string says;
  std::function<void(RunConfig&)> make;
};

/// Changes of one kind, the smallest first.
using Rung = std::vector<Change>;

Rung checkpointing_of(const RunConfig& config) {
  Rung out;
  for (const auto& name : config::names_of<config::ActivationCheckpointing>()) {
    const auto level = *config::choice_called<config::ActivationCheckpointing>(name);
    if (level > config.train.activation_checkpointing)
      out.push_back({"train.activation_checkpointing=" + name,
                     [level](RunConfig& c) { c.train.activation_checkpointing = level; }});
  }
  return out;
}

/// Lanes that are one for each micro-batch stay so.
Rung micro_batches_of(const RunConfig& config) {
  Rung out;
  for (int size = config.train.micro_batch - 1; size > 0; --size)
    if (config.train.micro_batch % size == 0)
      out.push_back({fmt::format("train.micro_batch={}", size), [size](RunConfig& c) {
                       if (c.train.lanes == config::micro_batches(c.train)) c.train.lanes = 0;
                       c.train.micro_batch = size;
                     }});
  return out;
}

Rung offload_of(const RunConfig& config, const config::ClusterFacts& facts) {
  if (facts.gpu == "none") return {};
  const auto other =
      config.shard.offload == config::Offload::none ? config::Offload::moments : config::Offload::none;
  return {{"shard.offload=" + config::name_of(other), [other](RunConfig& c) { c.shard.offload = other; }}};
}

/// hfsdp gathers from the same ranks as before; larger groups gather from other nodes.
Rung sharding_of(const RunConfig& config) {
  using enum config::Strategy;
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const config::Strategy now = config.shard.strategy;
  const int group = now == no_shard ? config.cluster.ranks_per_node : config::shard_group_of(config, world);
  Rung out;
  const auto add = [&](config::Strategy strategy, int size) {
    const bool named = (strategy == hybrid_shard || strategy == hfsdp) && size != group;
    out.push_back({(strategy == now ? "" : "shard.strategy=" + config::name_of(strategy)) +
                       (named ? fmt::format("{}shard.group={}", strategy == now ? "" : " and ", size) : ""),
                   [strategy, size](RunConfig& c) {
                     c.shard.strategy = strategy;
                     c.shard.group = size;
                   }});
  };
  const auto add_larger = [&](config::Strategy strategy) {
    for (int size = 2 * group; size <= world; size *= 2) add(strategy, size);
  };
  if (now == no_shard) add(hybrid_shard, group);
  if (now == no_shard || now == hybrid_shard) add(hfsdp, group), add_larger(hybrid_shard);
  if (now == no_shard || now == hybrid_shard || now == hfsdp) add_larger(hfsdp);
  if (now != full_shard) add(full_shard, 0);
  return out;
}

Rung nodes_of(const RunConfig& config) {
  constexpr int most = 64;  // times as many
  Rung out;
  for (int times = 2; times <= most; times *= 2)
    out.push_back({fmt::format("cluster.nodes={}", times * config.cluster.nodes),
                   [times](RunConfig& c) { c.cluster.nodes *= times; }});
  return out;
}

Rung lanes_of(const RunConfig& config) {
  Rung out;
  for (int lanes = config.train.lanes / 2; lanes > 0 && config.train.lanes % lanes == 0; lanes /= 2)
    out.push_back({fmt::format("train.lanes={}", lanes), [lanes](RunConfig& c) { c.train.lanes = lanes; }});
  return out;
}

Rung sequences_of(const RunConfig& config) {
  constexpr int shortest = 128;
  Rung out;
  for (int length = config.train.sequence / 2; length >= shortest; length /= 2)
    out.push_back(
        {fmt::format("train.sequence={}", length), [length](RunConfig& c) { c.train.sequence = length; }});
  return out;
}

/// What may be changed on the nodes that the job has; those that cost safety come last.
std::vector<Rung> settings_of(const RunConfig& config, const config::ClusterFacts& facts) {
  std::vector<Rung> out = {checkpointing_of(config), micro_batches_of(config), offload_of(config, facts),
                           sharding_of(config)};
  if (config.shard.prefetch_forward + config.shard.prefetch_backward > 0)
    out.push_back({{"shard.prefetch_forward=0 and shard.prefetch_backward=0",
                    [](RunConfig& c) { c.shard.prefetch_forward = c.shard.prefetch_backward = 0; }}});
  if (config::keeps_copies(config))
    out.push_back({{"shard.keep_across_micro_steps=false",
                    [](RunConfig& c) { c.shard.keep_across_micro_steps = false; }}});
  if (config.checkpoint.partner != config::Partner::none)
    out.push_back(
        {{"checkpoint.partner=none", [](RunConfig& c) { c.checkpoint.partner = config::Partner::none; }}});
  if (config.checkpoint.local != "none")
    out.push_back({{"checkpoint.local=none", [](RunConfig& c) { c.checkpoint.local = "none"; }}});
  return out;
}

std::string numbers_of(const Plan& plan, Limit limit, const config::ClusterFacts& facts) {
  switch (limit) {
    case Limit::rank:
      return fmt::format("{} of {} a rank", size_text(needed_of_rank(plan, facts)),
                         size_text(plan.memory.capacity));
    case Limit::node:
      return fmt::format("{} of {} a node", size_text(plan.host.total()), size_text(plan.host.capacity));
    case Limit::shm:
      break;
  }
  return fmt::format("{} of {} of /dev/shm a node", size_text(plan.host.total_in_shm()),
                     size_text(plan.host.shm_capacity));
}

using Changes = std::vector<const Change*>;

/// The first changes in the ladder's order that fit together, as few as this order finds: one; else the
/// strongest of the first kinds and one more.
std::optional<std::pair<Changes, Plan>> first_that_fits(
    const std::vector<Rung>& ladder, const std::function<std::optional<Plan>(const Changes&)>& try_changes) {
  Changes base;
  for (std::size_t kept = 0; kept < ladder.size(); ++kept) {
    for (std::size_t rung = kept; rung < ladder.size(); ++rung)
      for (const Change& change : ladder[rung]) {
        Changes changes = base;
        changes.push_back(&change);
        if (auto plan = try_changes(changes)) return std::pair{changes, *std::move(plan)};
      }
    if (!ladder[kept].empty()) base.push_back(&ladder[kept].back());
  }
  return std::nullopt;
}

}  // namespace

std::int64_t needed_of_rank(const Plan& plan, const config::ClusterFacts& facts) {
  return sum_of(parts_of_rank(plan, facts));
}

void check_fit(const Plan& plan, const RunConfig& config, const config::ClusterFacts& facts) {
  if (!config::promises_of(config.rank).trains_as_set) return;
  const auto parts = parts_of_rank(plan, facts);
  if (plan.memory.capacity > 0 && sum_of(parts) > plan.memory.capacity)
    throw DoesNotFit(
        Limit::rank,
        fmt::format("a rank needs {} but {} has {}", size_text(sum_of(parts)),
                    facts.gpu == "none" ? "its share of a node" : "a GPU", size_text(plan.memory.capacity)),
        fmt::format("sharded over {}: {}", plan.group_size, list_of(parts)));
  for (const bool in_shm : {false, true}) check_node(plan.host, in_shm, facts.name);
}

std::string smallest_change(const DoesNotFit& refused, const RunConfig& config,
                            const config::ClusterFacts& facts, const TryPlan& try_plan) {
  const auto try_changes = [&](const Changes& changes) {
    RunConfig changed = config;
    for (const Change* change : changes) change->make(changed);
    return try_plan(changed);
  };
  // More nodes only where nothing else suffices, and last what changes the run's results.
  std::vector<Rung> ladder = settings_of(config, facts);
  auto found = first_that_fits(ladder, try_changes);
  for (const auto& further :
       std::vector<std::vector<Rung>>{{nodes_of(config)}, {lanes_of(config), sequences_of(config)}}) {
    if (found) break;
    ladder.insert(ladder.end(), further.begin(), further.end());
    found = first_that_fits(ladder, try_changes);
  }
  if (!found) return "No setting makes it fit: use a smaller model, or nodes with more memory?";
  auto& [changes, plan] = *found;
  for (std::size_t i = 0; changes.size() > 1 && i + 1 < changes.size();) {  // those that are not needed
    Changes fewer = changes;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (auto smaller = try_changes(fewer)) {
      changes = std::move(fewer);
      plan = *std::move(smaller);
    } else {
      ++i;
    }
  }
  std::string says;
  for (std::size_t i = 0; i < changes.size(); ++i)
    says += (i == 0 ? "" : i + 1 == changes.size() ? " and " : ", ") + changes[i]->says;
  return fmt::format("Set {}, with which it fits: {}?", says, numbers_of(plan, refused.limit(), facts));
}

}  // namespace holdfast::launcher

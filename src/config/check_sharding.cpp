// Rules about who holds what, and who adds what.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/config/check_parts.hpp"
#include "src/config/choices.hpp"
#include "src/config/kept_blocks.hpp"
#include "src/config/lane_plan.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {
namespace {

bool has_group(Strategy s) { return s == Strategy::hybrid_shard || s == Strategy::hfsdp; }

void check_gathering(const Shard& s, const ModelShape& m) {
  const auto kept = kept_blocks(s, m.layers);
  if (s.keep_across_micro_steps && std::find(kept.begin(), kept.end(), true) == kept.end())
    refuse("shard.keep_across_micro_steps is set but no block is kept", "shard.keep_gathered is none",
           "Set shard.keep_gathered, for example to all?");
}

int check_shard_group(const RunConfig& c, int world) {
  const int group = shard_group_of(c, world);
  if (!has_group(c.shard.strategy) && c.shard.group > 0 && c.shard.group != group)
    refuse(fmt::format("shard.group = {} contradicts shard.strategy = {}", c.shard.group,
                       name_of(c.shard.strategy)),
           fmt::format("its groups are of {}, in a world of {}", group, world),
           "Leave it out, or use hybrid_shard?");
  if (world % group != 0)
    refuse("shard.group does not divide the number of ranks",
           fmt::format("{} nodes x {} ranks = {} ranks, group {}", c.cluster.nodes, c.cluster.ranks_per_node,
                       world, group),
           fmt::format("Use {}?", std::gcd(world, group)));
  return group;
}

}  // namespace

int shard_group_of(const RunConfig& config, int world) {
  switch (config.shard.strategy) {
    case Strategy::no_shard:
      return 1;
    case Strategy::full_shard:
    case Strategy::shard_grad_op:
      return world;
    case Strategy::hybrid_shard:
    case Strategy::hfsdp:
      break;
  }
  return config.shard.group > 0 ? config.shard.group : config.cluster.ranks_per_node;
}

void check_sharding(const RunConfig& config, const ModelShape& model) {
  if (config.shard.group < 0)
    refuse("shard.group must not be negative", fmt::format("it is {}", config.shard.group),
           "Use 0 for the ranks of a node?");
  check_gathering(config.shard, model);
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const int group = world > 0 ? check_shard_group(config, world) : 1;
  if (promises_of(config.rank).trains_as_set)
    LanePlan(config.train, std::max(1, world / group), group);  // refuses
}

}  // namespace holdfast::config

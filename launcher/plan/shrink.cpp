#include "launcher/plan/shrink.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/error.hpp"
#include "src/config/lane_plan.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

int replicas_on(const Shrinking& s, int nodes) { return nodes * s.ranks_per_node / s.group; }

/// Of the replica that has the most (numerics rule 4: replica g owns parts [gP/R, (g+1)P/R)).
int max_parts(const Shrinking& s, int nodes) {
  const int replicas = replicas_on(s, nodes);
  return (s.parts + replicas - 1) / replicas;
}

}  // namespace

Shrinking shrinking_of(const config::RunConfig& config) {
  Shrinking s;
  s.nodes = config.cluster.nodes;
  s.ranks_per_node = std::max(1, config.cluster.ranks_per_node);
  const int world = s.nodes * s.ranks_per_node;
  s.group = std::max(1, config::shard_group_of(config, world));
  s.parts = config::promises_of(config.rank).trains_as_set
                ? config::LanePlan(config.train, world / s.group, s.group).parts()
                : world / s.group;
  s.steps = config.train.steps;
  const int together = std::lcm(s.group, s.ranks_per_node) / s.ranks_per_node;
  if (s.nodes % together == 0 && s.nodes > together) s.together = together;
  return s;
}

double slowdown(const Shrinking& s, int nodes) {
  expects(nodes > 0 && nodes * s.ranks_per_node % s.group == 0, "whole replicas stay");
  return static_cast<double>(max_parts(s, nodes)) / max_parts(s, s.nodes);
}

double shrink_costs_s(const Shrinking& s, int nodes, double hours_left) {
  return (slowdown(s, nodes) - 1) * hours_left * 3600;
}

Cheaper cheaper_when_short(const Shrinking& s, int nodes, double hours_left) {
  if (hours_left < 0) return Cheaper::requeue;
  return shrink_costs_s(s, nodes, hours_left) <= requeue_hold_s + requeue_start_s ? Cheaper::shrink
                                                                                  : Cheaper::requeue;
}

}  // namespace holdfast::launcher

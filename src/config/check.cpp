// Rules across fields. Each says what is wrong, with the numbers, and what to do about it.
#include <fmt/format.h>

#include <numeric>

#include "src/base/error.hpp"
#include "src/config/load.hpp"

namespace holdfast::config {
namespace {

[[noreturn]] void refuse(std::string problem, std::string why, std::string hint) {
  throw Error(Exit::usage, std::move(problem), std::move(why), std::move(hint));
}

void check_cluster(const Cluster& c) {
  if (c.nodes < 1) refuse("cluster.nodes must be at least 1", fmt::format("it is {}", c.nodes), "");
  if (c.spares < 0)
    refuse("cluster.spares must not be negative", fmt::format("it is {}", c.spares), "Use 0 for no spares?");
  if (c.ranks_per_node < 0)
    refuse("cluster.ranks_per_node must not be negative", fmt::format("it is {}", c.ranks_per_node),
           "Use 0 for one per GPU?");
}

void check_supervise(const Supervise& s) {
  const auto three_beats = [&](const char* name, int silence) {
    if (silence < 3 * s.heartbeat_ms)
      refuse(fmt::format("supervise.{} is too short", name),
             fmt::format("{} ms of silence is less than three heartbeats of {} ms, so one late packet would "
                         "look like a death",
                         silence, s.heartbeat_ms),
             fmt::format("Use at least {}, or a shorter heartbeat_ms?", 3 * s.heartbeat_ms));
  };
  if (s.heartbeat_ms < 1)
    refuse("supervise.heartbeat_ms must be positive", fmt::format("it is {}", s.heartbeat_ms), "");
  three_beats("node_silence_ms", s.node_silence_ms);
  three_beats("leader_silence_ms", s.leader_silence_ms);
}

void check_rank(const Rank& r) {
  if (r.command.empty() || r.command.front().empty())
    refuse("rank.command is empty", "a rank needs a program", "Leave it out for holdfast-train?");
  for (const auto& entry : r.environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0)
      refuse("rank.environment holds an entry without a name", "'" + entry + "'", "Write \"NAME=value\"?");
  }
}

void check_model(const ModelShape& m) {
  if (m.vocabulary < 1 || m.width < 1 || m.layers < 1 || m.heads < 1 || m.kv_heads < 1 || m.ffn < 1 ||
      m.max_sequence < 1)
    refuse("a size of model " + m.name + " is not positive",
           "all of vocabulary, width, layers, heads, kv_heads, ffn and max_sequence must be", "");
  if (m.width % m.heads != 0)
    refuse(fmt::format("model {}: heads does not divide width", m.name),
           fmt::format("{} heads, width {}", m.heads, m.width), "");
  if (m.head_size() % 2 != 0)
    refuse(fmt::format("model {}: the head size is odd", m.name),
           fmt::format("width {} / {} heads = {}; rotary embedding turns pairs", m.width, m.heads,
                       m.head_size()),
           "");
  if (m.heads % m.kv_heads != 0)
    refuse(fmt::format("model {}: kv_heads does not divide heads", m.name),
           fmt::format("{} heads, {} kv_heads", m.heads, m.kv_heads), "");
}

void check_train(const Train& t, const ModelShape& m) {
  if (t.steps < 1) refuse("train.steps must be at least 1", fmt::format("it is {}", t.steps), "");
  if (t.micro_batch < 1 || t.leaves < 1)
    refuse("train.micro_batch and train.leaves must be at least 1",
           fmt::format("they are {} and {}", t.micro_batch, t.leaves), "");
  if (t.sequence < 1 || t.sequence > m.max_sequence)
    refuse("train.sequence is out of range",
           fmt::format("it is {}; model {} takes 1 to {} tokens", t.sequence, m.name, m.max_sequence), "");
  if (t.lanes < 0)
    refuse("train.lanes must not be negative", fmt::format("it is {}", t.lanes),
           "Use 0 for one per replica?");
}

void check_optim(const Optim& o, const Train& t) {
  if (o.min_lr > o.lr) refuse("optim.min_lr is above optim.lr", fmt::format("{} > {}", o.min_lr, o.lr), "");
  if (o.beta1 >= 1 || o.beta2 >= 1)
    refuse("optim.beta1 and beta2 must be below 1", fmt::format("they are {} and {}", o.beta1, o.beta2), "");
  if (o.epsilon <= 0)
    refuse("optim.epsilon must be above 0", fmt::format("it is {}", o.epsilon), "Use 1e-8?");
  if (o.warmup_steps > t.steps)
    refuse("optim.warmup_steps is more than train.steps", fmt::format("{} > {}", o.warmup_steps, t.steps),
           "");
}

/// A lane is a whole number of leaves, and every replica owns at least one lane. `replicas` 0: not known yet.
void check_lanes(const Train& t, int replicas, int group) {
  const int lanes = t.lanes == 0 ? replicas : t.lanes;
  if (lanes < replicas)
    refuse(
        "train.lanes is less than the number of replicas",
        fmt::format("{} lanes, {} replicas of {} ranks; each replica needs a lane", lanes, replicas, group),
        fmt::format("Use {} lanes, or larger shard groups?", replicas));
  if (lanes > 0 && t.leaves % lanes != 0)
    refuse("train.leaves is not a whole number of lanes", fmt::format("{} leaves, {} lanes", t.leaves, lanes),
           fmt::format("Use {} leaves?", (std::int64_t{t.leaves} / lanes + 1) * lanes));
}

int check_shard_group(const RunConfig& c, int world) {
  const int group = shard_group_of(c, world);
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
      return world;
    case Strategy::hybrid_shard:
      break;
  }
  return config.shard.group > 0 ? config.shard.group : config.cluster.ranks_per_node;
}

RunConfig resolve(RunConfig config, const ClusterFacts& facts) {
  if (config.cluster.ranks_per_node == 0) config.cluster.ranks_per_node = facts.gpus_per_node;
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const int group = shard_group_of(config, world);
  if (config.shard.strategy == Strategy::hybrid_shard) config.shard.group = group;
  if (config.train.lanes == 0 && group > 0) config.train.lanes = std::max(1, world / group);
  return config;
}

void check(const RunConfig& config, const ModelShape& model) {
  check_cluster(config.cluster);
  check_supervise(config.supervise);
  check_rank(config.rank);
  check_model(model);
  check_train(config.train, model);
  check_optim(config.optim, config.train);
  if (config.shard.group < 0)
    refuse("shard.group must not be negative", fmt::format("it is {}", config.shard.group),
           "Use 0 for the ranks of a node?");
  if (config.checkpoint.every < 0)
    refuse("checkpoint.every must not be negative", fmt::format("it is {}", config.checkpoint.every),
           "Use 0 for the end only?");
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const int group = world > 0 ? check_shard_group(config, world) : 1;
  check_lanes(config.train, world / group, group);
}

}  // namespace holdfast::config

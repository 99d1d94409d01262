#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using testing::HasSubstr;

RunConfig good() {
  RunConfig c;
  c.cluster.nodes = 2, c.cluster.ranks_per_node = 2;
  c.train.sequence = 128;
  return c;
}

struct Case {
  const char* says;
  std::function<void(RunConfig&, ModelShape&)> spoil;
};

TEST(Check, SaysWhatIsWrongAndWhatToDo) {
  const std::vector<Case> cases = {
      {"cluster.nodes must be at least 1 (it is 0)", [](auto& c, auto&) { c.cluster.nodes = 0; }},
      {"cluster.spares must not be negative (it is -1). Use 0",
       [](auto& c, auto&) { c.cluster.spares = -1; }},
      {"cluster.ranks_per_node must not be negative", [](auto& c, auto&) { c.cluster.ranks_per_node = -1; }},
      {"supervise.node_silence_ms is too short (500 ms of silence is less than three heartbeats of 200 ms",
       [](auto& c, auto&) { c.supervise.node_silence_ms = 500; }},
      {"supervise.leader_silence_ms is too short",
       [](auto& c, auto&) { c.supervise.leader_silence_ms = 599; }},
      {"rank.command is empty", [](auto& c, auto&) { c.rank.command.clear(); }},
      {"rank.environment holds an entry without a name ('=x')",
       [](auto& c, auto&) {
         c.rank.environment = {"A=", "=x"};
       }},
      {"shard.group does not divide the number of ranks (2 nodes x 2 ranks = 4 ranks, group 3)",
       [](auto& c, auto&) { c.shard.group = 3; }},
      {"shard.group must not be negative", [](auto& c, auto&) { c.shard.group = -2; }},
      {"train.leaves is not a whole number of lanes (8 leaves, 3 lanes). Use 9 leaves?",
       [](auto& c, auto&) { c.train.lanes = 3; }},
      {"train.lanes is less than the number of replicas (1 lanes, 2 replicas of 2 ranks",
       [](auto& c, auto&) { c.train.lanes = 1; }},
      {"train.leaves is not a whole number of lanes (7 leaves, 2 lanes). Use 8 leaves?",
       [](auto& c, auto&) { c.train.leaves = 7; }},
      {"train.leaves is not a whole number of lanes (1 leaves, 4 lanes",
       [](auto& c, auto&) { c.train.leaves = 1, c.shard.strategy = Strategy::no_shard; }},
      {"train.sequence is out of range (it is 513; model tiny takes 1 to 512 tokens)",
       [](auto& c, auto&) { c.train.sequence = 513; }},
      {"train.steps must be at least 1", [](auto& c, auto&) { c.train.steps = 0; }},
      {"checkpoint.every must not be negative", [](auto& c, auto&) { c.checkpoint.every = -1; }},
      {"optim.min_lr is above optim.lr", [](auto& c, auto&) { c.optim.min_lr = 1; }},
      {"optim.beta1 and beta2 must be below 1", [](auto& c, auto&) { c.optim.beta2 = 1; }},
      {"optim.epsilon must be above 0", [](auto& c, auto&) { c.optim.epsilon = 0; }},
      {"optim.warmup_steps is more than train.steps (10 > 5)", [](auto& c, auto&) { c.train.steps = 5; }},
      {"heads does not divide width (4 heads, width 66)", [](auto&, auto& m) { m.width = 66; }},
      {"the head size is odd (width 60 / 4 heads = 15", [](auto&, auto& m) { m.width = 60; }},
      {"kv_heads does not divide heads (4 heads, 3 kv_heads)", [](auto&, auto& m) { m.kv_heads = 3; }},
      {"a size of model tiny is not positive", [](auto&, auto& m) { m.layers = 0; }},
  };
  check(good(), {});
  for (const auto& c : cases) {
    SCOPED_TRACE(c.says);
    RunConfig config = good();
    ModelShape model;
    c.spoil(config, model);
    const auto refusal = test::refusal_of([&] { check(config, model); });
    EXPECT_THAT(refusal.text, HasSubstr(c.says));
    EXPECT_EQ(refusal.exit, Exit::usage);
  }
}

TEST(Check, ResolveFillsWhatWasLeftOpen) {
  ClusterFacts facts;
  facts.gpus_per_node = 8;
  RunConfig c;
  c.cluster.nodes = 3;
  const auto hybrid = resolve(c, facts);
  EXPECT_EQ(hybrid.cluster.ranks_per_node, 8);
  EXPECT_EQ(hybrid.shard.group, 8);
  EXPECT_EQ(hybrid.train.lanes, 3);
  c.shard.strategy = Strategy::full_shard;
  EXPECT_EQ(resolve(c, facts).train.lanes, 1);
  EXPECT_EQ(shard_group_of(resolve(c, facts), 24), 24);
  c.shard.strategy = Strategy::no_shard, c.train.lanes = 48;
  EXPECT_EQ(resolve(c, facts).train.lanes, 48);
}

}  // namespace
}  // namespace holdfast::config

// What a world without a replica costs, and when the queue costs less.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "launcher/plan/shrink.hpp"
#include "launcher/plan/survival.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

config::RunConfig run_of(int nodes, int ranks_per_node, int group, int lanes,
                         config::Strategy strategy = config::Strategy::hybrid_shard) {
  config::RunConfig c;
  c.cluster.nodes = nodes;
  c.cluster.ranks_per_node = ranks_per_node;
  c.shard.strategy = strategy;
  c.shard.group = group;
  c.train.lanes = lanes;
  c.train.steps = 500;
  // As many as fill all ranks of the largest world here, and are a whole number of lanes and groups.
  c.train.global_batch = std::lcm(lanes, group > 0 ? group : 1) * 32;
  return c;
}

TEST(Shrinking, WholeReplicasOnWholeNodes) {
  const auto together = [](const config::RunConfig& c) { return shrinking_of(c).together; };
  EXPECT_EQ(together(run_of(4, 8, 8, 4)), 1) << "a node is a replica";
  EXPECT_EQ(together(run_of(4, 8, 4, 8)), 1) << "a node holds two";
  EXPECT_EQ(together(run_of(8, 8, 16, 4)), 2) << "two nodes hold one";
  EXPECT_EQ(together(run_of(6, 8, 12, 4)), 3) << "three nodes hold two: fewer would cut one";
  EXPECT_EQ(together(run_of(2, 8, 16, 1)), 0) << "all of them hold the only one";
  EXPECT_EQ(together(run_of(4, 8, 0, 1, config::Strategy::full_shard)), 0);
  EXPECT_EQ(together(run_of(1, 8, 4, 2)), 0) << "the last node";
  EXPECT_EQ(together(run_of(4, 8, 0, 32, config::Strategy::no_shard)), 1);
}

TEST(Shrinking, TheReplicaWithTheMostPartsDecides) {
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(run_of(4, 8, 8, 4)), 4), 1);
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(run_of(4, 8, 8, 4)), 3), 2)
      << "one lane each, and one replica has two";
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(run_of(4, 8, 8, 12)), 3), 4.0 / 3) << "R / (R-1)";
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(run_of(4, 8, 8, 12)), 2), 2);
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(run_of(8, 8, 16, 12)), 6), 4.0 / 3);
  config::RunConfig c = run_of(4, 8, 8, 0);
  c.train.global_batch = 96;
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(c), 3), 4.0 / 3)
      << "a lane for each micro-batch: 12 for each rank of a group";
  c.train.global_batch = 32;
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(c), 3), 2) << "a micro-batch for each rank";
  c.rank.command = {"python3"};
  c.train.global_batch = 1;
  EXPECT_DOUBLE_EQ(slowdown(shrinking_of(c), 3), 2) << "another program has no micro-batches";
}

TEST(Shrinking, CostsAgainstTheQueue) {
  const Shrinking s = shrinking_of(run_of(4, 8, 8, 12));
  EXPECT_NEAR(shrink_costs_s(s, 3, 0.5), 600, 1e-9);
  EXPECT_EQ(cheaper_when_short(s, 3, 0.5), Cheaper::requeue);
  EXPECT_NEAR(shrink_costs_s(s, 3, 0.15), 180, 1e-9);
  EXPECT_EQ(cheaper_when_short(s, 3, 0.1499), Cheaper::shrink);
  EXPECT_EQ(cheaper_when_short(s, 3, 0), Cheaper::shrink);
  EXPECT_EQ(cheaper_when_short(s, 3, -1), Cheaper::requeue) << "nothing is known";
}

TEST(Shrinking, Says) {
  config::Supervise limits;
  const auto says = [&](const config::RunConfig& c) {
    Plan plan;
    plan.shrinking = shrinking_of(c);
    plan.global_batch = c.train.global_batch;
    return when_short_says(plan, limits);
  };
  EXPECT_THAT(says(run_of(4, 8, 0, 1, config::Strategy::full_shard)),
              ElementsAre(HasSubstr("no smaller world would hold all of the state")));
  EXPECT_THAT(
      says(run_of(4, 8, 8, 12)),
      ElementsAre(
          "the run goes back into the queue: supervise.min_nodes = 0 allows no smaller world",
          "on 3 nodes each step takes 1.33 times as long: 768 micro-batches over 24 ranks, the same bits"));
  limits.min_nodes = 3;
  EXPECT_THAT(
      says(run_of(4, 8, 8, 4)),
      ElementsAre(
          "the run shrinks when less than 3.0 min are left, else it goes back into the queue: 3.0 min "
          "and the wait",
          HasSubstr("2.00 times"), "without train.lanes it would be 1.38 times"));
  limits.when_short = config::WhenShort::shrink;
  EXPECT_EQ(says(run_of(4, 8, 8, 12)).front(), "the run shrinks, down to 3 nodes");
  limits.when_short = config::WhenShort::stop;
  limits.min_nodes = 4;
  EXPECT_THAT(says(run_of(4, 8, 8, 12)).front(), HasSubstr("the run ends with exit code 5"));
}

}  // namespace
}  // namespace holdfast::launcher

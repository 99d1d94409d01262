#include "launcher/plan/rank_work.hpp"

#include <gtest/gtest.h>

#include "launcher/plan/topology.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

RankWork work_of(const std::string& job, const std::vector<std::string>& sets = {}) {
  const auto config = config::load(job, sets).config;
  const auto model = config::load_model(config.model.file);
  const auto facts = config::load_cluster(config.cluster.file);
  const auto nodes = hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares);
  return rank_work(make_plan(config, model, facts, nodes, std::nullopt), config, model, facts);
}

TEST(RankWork, IsCountedFromThePlan) {
  const auto config = config::load("quickstart").config;
  const auto model = config::load_model(config.model.file);
  const auto facts = config::load_cluster(config.cluster.file);
  const Plan plan = make_plan(config, model, facts,
                              hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares), {});
  const RankWork work = rank_work(plan, config, model, facts);
  const auto& state = plan.memory.state;
  EXPECT_EQ(work.restored, state.parameters + state.copies + state.optimizer + state.frozen);
  EXPECT_EQ(work.state, work.restored + state.accumulators);
  EXPECT_EQ(work.saved, plan.checkpoint_bytes / plan.world());
  EXPECT_EQ(work.tokens, 4 * plan.micro_batch * plan.sequence);
  EXPECT_EQ(work.peers, plan.world() - 1);
  EXPECT_GT(work.operations, 8.0 * static_cast<double>(plan.parameters) * plan.micro_batch * plan.sequence);
  EXPECT_EQ(work.read_s, 0) << "nobody knows how fast a minipod's storage is";
  EXPECT_FALSE(work.gpu);
  EXPECT_EQ(work.patience_s, config.checkpoint.read_patience_s);
  EXPECT_TRUE(work.known());
}

TEST(RankWork, GrowsWithTheMicroBatchAndTheSequence) {
  const RankWork one = work_of("quickstart", {"train.micro_batch=1"}),
                 two = work_of("quickstart", {"train.micro_batch=2"});
  EXPECT_EQ(two.operations, 2 * one.operations);
  EXPECT_EQ(two.tokens, 2 * one.tokens);
  EXPECT_EQ(two.restored, one.restored);
}

TEST(RankWork, AProgramOfWhichNothingIsKnownHasNone) {
  EXPECT_EQ(work_of("quickstart", {"rank.command=[\"python3\"]"}), RankWork{});
}

}  // namespace
}  // namespace holdfast::launcher

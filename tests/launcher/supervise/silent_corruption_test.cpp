#include "launcher/supervise/silent_corruption.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/supervise/budget_table.hpp"
#include "tests/launcher/supervise/run_with_attempt.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SilentCorruption : public testing::Test, protected test::RunWithAttempt {
 protected:
  SilentCorruption() { limits.max_evictions = 1; }
  config::Supervise limits;
};

TEST_F(SilentCorruption, AfterAnUnequalComparisonOlderStateIsTrusted) {
  state.durable = {10, 20, 30};
  const control::RankDoubt doubt{0, 1, 25, {2}, "replicas", "digests differ"};
  const Corruption one = judge(doubt, {1}, 31, state, roster, limits);
  ASSERT_THAT(test::kinds_of(one.events), ElementsAre("silent_corruption", "node_evicted"));
  const auto event = std::get<events::SilentCorruption>(one.events.front());
  EXPECT_EQ(event.trusted_step, 20);
  EXPECT_EQ(event.step, 31);
  EXPECT_EQ(one.failure.node, 1);
  EXPECT_EQ(one.failure.blame, Blame::node);
  EXPECT_THAT(one.failure.evidence, HasSubstr("unequal after step 25 on n1: digests differ"));
  const Corruption word = judge(doubt, {1}, 31, state, roster, limits, {.our_verdicts = false});
  EXPECT_EQ(word.failure.blame, Blame::nothing) << "another program's word convicts no node";
  EXPECT_TRUE(std::none_of(word.events.begin(), word.events.end(),
                           [](const Event& e) { return std::holds_alternative<events::NodeEvicted>(e); }));
  const Corruption two = judge(doubt, {0, 1}, 31, state, roster, limits);
  EXPECT_THAT(test::kinds_of(two.events),
              ElementsAre("silent_corruption", "node_suspected", "node_suspected"));
  EXPECT_EQ(two.failure.node, -1);
  state.durable.clear();
  EXPECT_EQ(std::get<events::SilentCorruption>(judge(doubt, {}, 31, state, roster, limits).events.front())
                .trusted_step,
            0)
      << "it begins again";
}

TEST_F(SilentCorruption, EvictsNoMoreNodesThanItsBudget) {
  const control::RankDoubt doubt{0, 1, 25, {2}, "replicas", "digests differ"};
  state.evictions["silent corruption"] = {"n4"};
  const Corruption second = judge(doubt, {1}, 31, state, roster, limits);
  EXPECT_THAT(test::kinds_of(second.events), ElementsAre("silent_corruption", "node_suspected"));
  EXPECT_TRUE(second.failure.evictions_spent);
  EXPECT_EQ(cause_kind_of(second.failure), CauseKind::program) << "its budgets end the run";
  EXPECT_THAT(second.failure.evidence, HasSubstr("silent corruption has evicted n4 already"));
  limits.max_evictions = 2;
  EXPECT_EQ(judge(doubt, {1}, 31, state, roster, limits).failure.node, 1);
}

}  // namespace
}  // namespace holdfast::launcher

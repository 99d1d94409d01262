#include "launcher/supervise/attempt_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/supervise/run_with_attempt.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;

class AttemptPlan : public testing::Test, protected test::RunWithAttempt {};

TEST_F(AttemptPlan, APlanNamesSparesThatTakeSlotsAndItsSize) {
  Decision decision;
  decision.answer = PolicyAction::substitute;
  decision.because = "a row";
  decision.placement = {0, 4, 1};
  decision.promotions = {{1, 1, 4}, {2, 2, 1}};
  state.setbacks = 3;
  const auto events = plan_events(decision, {0, 1, 2}, 2, roster, state, {});
  ASSERT_THAT(test::kinds_of(events), ElementsAre("spare_promoted", "attempt_planned")) << "n1 only moves";
  const auto planned = std::get<events::AttemptPlanned>(events.back());
  EXPECT_EQ(planned.attempt, 2);
  EXPECT_THAT(planned.placement, ElementsAre("n0", "n4", "n1"));
  EXPECT_EQ(planned.wait_s, 4);
  state.job_term = 2;
  EXPECT_EQ(wait_before_next(state), 0) << "the first attempt of another job";
  state.job_term = 1;
  decision.placement = {0, 4};
  decision.promotions.clear();
  EXPECT_THAT(test::kinds_of(plan_events(decision, {0, 4, 1}, 2, roster, state, {})),
              ElementsAre("run_shrunk", "attempt_planned"));
  EXPECT_THAT(test::kinds_of(plan_events(decision, {0}, 2, roster, state, {})),
              ElementsAre("run_grown", "attempt_planned"));
}

TEST_F(AttemptPlan, ANewLeaderBeginsWhereTheLastAttemptWas) {
  state.attempts.back().placement = {"n0", "n4", "n2"};
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 4, 2));
  state.attempts.back().placement = {"n0", "n4"};
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 4));
  state.job_term = 2;
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 1, 2)) << "another allocation";
  state.attempts.back().placement = {"n0", "n4", "elsewhere"};
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement_to_begin_with(roster, {}), ElementsAre(0, 1, 2));
}

TEST_F(AttemptPlan, ANodeThatFailedInAnEarlierJobBeginsAsASpare) {
  state.pasts["n1"].add({NodeMark::What::lost, 1010, 1, 1});
  state.job_began_at = 2000;
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 1, 2)) << "its attempt goes on";
  state.job_term = 2;
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 4, 2)) << "and not the batch host";
  state.attempts.back().placement = {"n0", "n1", "elsewhere"};
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 4, 2)) << "also as it was planned";
  roster.nodes.resize(4);
  EXPECT_THAT(placement_to_begin_with(roster, state), ElementsAre(0, 1, 2)) << "nobody else is there";
}

}  // namespace
}  // namespace holdfast::launcher

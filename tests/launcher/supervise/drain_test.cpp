#include "launcher/supervise/drain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/supervise/run_with_attempt.hpp"

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

class DrainState : public testing::Test, protected test::RunWithAttempt {};

TEST_F(DrainState, StateIsWorthSavingWhileOnlyTheNodesHaveIt) {
  EXPECT_TRUE(worth_saving(state));
  auto& last = state.attempts.back();
  last.ended_at = 1010;
  last.last_step = 17;
  state.durable_step = 17;
  EXPECT_FALSE(worth_saving(state));
  state.durable_step = 10;
  EXPECT_TRUE(worth_saving(state));
  state.trusted_step = 10;
  state.tainted_attempt = 1;
  EXPECT_FALSE(worth_saving(state)) << "it may be wrong";
  state.trusted_step = -1;
  last.restored.reset();
  EXPECT_FALSE(worth_saving(state));
  EXPECT_FALSE(worth_saving({}));
}

TEST_F(DrainState, ADrainedRunTellsWhatHasToBeDoneAgain) {
  state.drain = RunState::Draining{{true, "SIGTERM"}};
  state.durable_step = 10;
  const auto reason = [&](std::int64_t reached) { return drained(state, reached, std::nullopt).why; };
  EXPECT_EQ(reason(10), "SIGTERM");
  EXPECT_THAT(reason(17), HasSubstr("steps 11 to 17 did not become durable"));
  EXPECT_EQ(drained(state, 17, std::nullopt).exit_code, 75);
  EXPECT_THAT(drained(state, 17, end_after_signal(2, 6, 6, 25)).why,
              HasSubstr("not known to Holdfast: 2 of 6 ranks had not ended 25.0 s after SIGTERM"));
  EXPECT_THAT(end_after_signal(2, 6, 5, 25),
              HasSubstr("25.0 s after the order to end (SIGTERM was sent to 5 of 6), and were killed"));
  EXPECT_THAT(end_after_signal(0, 6, 5, 2), HasSubstr("within 2.0 s of SIGTERM"));
  EXPECT_THAT(end_after_signal(0, 6, 0, 2), HasSubstr("within 2.0 s of the order to end"));
  state.drain->for_good = true;
  EXPECT_EQ(drained(state, 17, std::nullopt).exit_code, 93);
  EXPECT_TRUE(saves_are_known(state, {.writes_run_dir = false})) << "a checkpoint of it was seen";
}

TEST_F(DrainState, AnEvictionNamesTheNodeThatLeaves) {
  state.evicting = {{"n2", "an order"}};
  EXPECT_EQ(eviction(state, roster, "late").evidence, "n2 leaves: an order; late");
  EXPECT_EQ(eviction(state, roster, "").node, 2);
}

}  // namespace
}  // namespace holdfast::launcher

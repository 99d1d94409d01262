// Ranks that are somebody else's program: what is not known of them, and what they do not hear.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;
using testing::HasSubstr;

/// A program that says nothing, started by the agents; or one that says where it is.
Shape silent() { return {.through_mpirun = false, .reports = false}; }
Shape speaking() {
  Shape setup{.through_mpirun = false};
  setup.facts.own_trainer = false;
  return setup;
}

bool runs(FakeCluster& c, int attempt) {
  return c.until([&] { return c.leader && c.leader->attempt() == attempt && c.stage() == Stage::running; },
                 10);
}
/// Attempt `number` runs for so long; then a rank fails.
void crash(FakeCluster& c, int number, double after_s) {
  ASSERT_TRUE(runs(c, number)) << number << ": " << c.result().dump(1);
  c.run(after_s);
  c.end_rank(number % 6, 1);
  c.run(1);
}
// What is known of their progress.

TEST(Programs, MayCrashAsOftenAsTheyLikeOnceTheyHaveRun) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 30; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 11));
  ASSERT_TRUE(runs(c, 31));
  EXPECT_FALSE(c.exit_code);
  const json ended = c.last("attempt_ended");
  EXPECT_EQ(ended["reports"], false);
  EXPECT_EQ(ended["progress_assumed"], true);
  EXPECT_NEAR(ended["ran_s"], 11, 1);
  EXPECT_TRUE(c.result()["attempts"][0]["last_step"].is_null()) << "nobody knows it";
}

TEST(Programs, ThatCrashAtEveryStartComeToAnEnd) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 3; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 5));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_EQ(c.result()["attempts"].size(), 3u);
  EXPECT_THAT(std::string(c.result()["why"]),
              HasSubstr("3 attempts in a row ended within 10 s of their start"));
}

TEST(Programs, ThatCrashSoonOnManyNodesComeToAnEnd) {
  Shape setup = silent();
  setup.limits.max_same_step = 100;
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 10; ++attempt) ASSERT_NO_FATAL_FAILURE(crash(c, attempt, 5));
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("10 attempts in a row ended within 10 s"));
}

TEST(Programs, ALongAttemptBreaksTheRowOfShortOnes) {
  FakeCluster c(silent());
  for (int attempt = 1; attempt <= 24; ++attempt)
    ASSERT_NO_FATAL_FAILURE(crash(c, attempt, attempt % 3 == 0 ? 11 : 2));
  EXPECT_FALSE(c.exit_code);
}

TEST(Programs, RunOnUnderTheNextLeader) {
  Shape setup = silent();
  setup.limits.max_same_step = 1;
  FakeCluster c(setup);
  ASSERT_TRUE(runs(c, 1));
  c.run(6);
  c.new_leader(1);
  ASSERT_TRUE(runs(c, 1));
  ASSERT_NO_FATAL_FAILURE(crash(c, 1, 6));
  EXPECT_TRUE(runs(c, 2)) << "it ran for 12 s, whoever led";
}

TEST(Programs, ThatSpeakAreHeldToWhatTheySay) {
  Shape setup = speaking();
  setup.limits.assumed_progress_s = 0;
  FakeCluster c(setup);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_TRUE(runs(c, attempt));
    ASSERT_TRUE(c.until([&] { return c.rank(0).step == 5; }, 10));
    c.rank(0).hangs = true;
    c.run(2);
    c.end_rank(1, 1);
    c.run(1);
    EXPECT_EQ(c.last("attempt_ended")["step"], 5);
    EXPECT_FALSE(c.last("attempt_ended").contains("reports"));
  }
  EXPECT_EQ(c.exit_code, 93);
  EXPECT_THAT(std::string(c.result()["why"]), HasSubstr("ended at step"));
}

}  // namespace
}  // namespace holdfast::launcher

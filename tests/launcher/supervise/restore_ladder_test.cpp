#include "launcher/supervise/restore_ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StateName sealed_of(const Launch& what) { return {what.from.sealed_step, what.from.sealed_attempt}; }

/// Two slots of two ranks each, on nodes 4 and 7, unless it is said otherwise.
struct ChoiceRow {
  const char* what;
  std::vector<Holding> holdings;
  std::int64_t at_least = 0;
  std::set<StateName> refused = {};
  std::optional<StateChoice> expected = std::nullopt;
};
const std::vector<int> on_4_and_7 = {4, 7};

Holding own(int node, int rank, std::int64_t step, int attempt = 1, int world = 4) {
  return {node, {rank, step, attempt, world, false}};
}
Holding copied(int node, int rank, std::int64_t step, int attempt = 1, int world = 4) {
  return {node, {rank, step, attempt, world, true}};
}
std::vector<Holding> joined(std::vector<Holding> a, const std::vector<Holding>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
/// All ranks have it where they run.
std::vector<Holding> all_own(std::int64_t step, int attempt = 1) {
  return {own(4, 0, step, attempt), own(4, 1, step, attempt), own(7, 2, step, attempt),
          own(7, 3, step, attempt)};
}

TEST(RestoreLadder, ChoosesTheNewestStateThatAllRanksHave) {
  const ChoiceRow rows[] = {
      {"nobody has anything", {}},
      {"all have it", all_own(9), 0, {}, StateChoice{{9, 1}, {}}},
      {"of two steps the newer", joined(all_own(8), all_own(9)), 0, {}, StateChoice{{9, 1}, {}}},
      {"one rank has not come to the newer",
       joined(all_own(8), {own(4, 0, 9), own(4, 1, 9), own(7, 2, 9)}),
       0,
       {},
       StateChoice{{8, 1}, {}}},
      {"the same step of two attempts is not one state",
       {own(4, 0, 9), own(4, 1, 9), own(7, 2, 9, 2), own(7, 3, 9, 2)}},
      {"of one step the newer attempt", joined(all_own(9, 1), all_own(9, 3)), 0, {}, StateChoice{{9, 3}, {}}},
      {"a newer step of an older attempt",
       joined(all_own(9, 1), all_own(8, 3)),
       0,
       {},
       StateChoice{{9, 1}, {}}},
      {"a lost node's ranks have copies",
       {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), copied(4, 3, 9)},
       0,
       {},
       StateChoice{{9, 1}, {{2, 4, 7}, {3, 4, 7}}}},
      {"a rank's own state is on another node",
       {own(4, 0, 9), own(4, 1, 9), own(5, 2, 9), own(7, 3, 9)},
       0,
       {},
       StateChoice{{9, 1}, {{2, 5, 7}}}},
      {"a copy on the rank's node is nearer",
       {own(4, 0, 9), own(4, 1, 9), own(5, 2, 9), copied(7, 2, 9), own(7, 3, 9)},
       0,
       {},
       StateChoice{{9, 1}, {{2, 7, 7}}}},
      {"a checkpoint is newer", all_own(9), 10},
      {"a checkpoint is as new", all_own(9), 9, {}, StateChoice{{9, 1}, {}}},
      {"refused", joined(all_own(8), all_own(9)), 0, {{9, 1}}, StateChoice{{8, 1}, {}}},
      {"of another world", {own(4, 0, 9, 1, 2), own(4, 1, 9, 1, 2), own(7, 2, 9, 1, 2), own(7, 3, 9, 1, 2)}},
      {"of ranks that are not in this world",
       joined(all_own(9), {own(7, 4, 9)}),
       0,
       {},
       StateChoice{{9, 1}, {}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    const auto got = choose_state(row.holdings, on_4_and_7, 2, row.at_least, row.refused);
    ASSERT_EQ(got.has_value(), row.expected.has_value());
    if (!got) continue;
    EXPECT_EQ(got->state, row.expected->state);
    EXPECT_EQ(got->moves, row.expected->moves);
  }
}

struct LadderTest : testing::Test {
  RestoreLadder ladder;
  RestoreLadder::Facts facts{on_4_and_7, 2, -1, true, 30, 100};
  void has(int node, std::initializer_list<Holding> what) {
    std::vector<control::SealedState> states;
    for (const auto& h : what) states.push_back(h.what);
    ladder.has(node, states);
  }
  void says(int node, std::int64_t step, int rank = -1, const char* why = "", bool no_room = false) {
    ladder.fetched(node, {2, step, 1, rank, why, no_room});
  }
};

TEST_F(LadderTest, IsSettledWhereNobodyHasAnything) {
  EXPECT_TRUE(ladder.settled());
  EXPECT_FALSE(ladder.news());
}

TEST_F(LadderTest, WaitsForMoves) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), copied(4, 3, 9)});
  EXPECT_FALSE(ladder.settled());
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 4, 7}, StateMove{3, 4, 7}));
  EXPECT_FALSE(ladder.settled());
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  says(4, 9);  // it was not asked
  says(7, 8);  // an older question
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_FALSE(ladder.settled());
  says(7, 9);
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_TRUE(ladder.news());
  EXPECT_STREQ(ladder.level(), "partner");
  EXPECT_EQ(ladder.state(), (StateName{9, 1}));
  EXPECT_EQ(ladder.tell(), "");
  EXPECT_FALSE(ladder.news());
}

TEST_F(LadderTest, TriesTheSameStateElsewhereAndThenAnOlderOne) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), own(4, 0, 8), own(4, 1, 8)});
  has(5, {own(5, 2, 9)});
  has(7, {own(7, 3, 9), own(7, 2, 8), own(7, 3, 8)});
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 4, 7}));
  says(7, 9, 2, "the checksum of model does not hold");
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 5, 7}));
  says(7, 9, 2, "nobody answers");
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state(), (StateName{8, 1}));
  EXPECT_STREQ(ladder.level(), "local");
  EXPECT_THAT(ladder.tell(), HasSubstr("step 9 of attempt 1, rank 2: nobody answers"));
}

/// Nor would it help to ask another node for the same.
TEST_F(LadderTest, ANodeWithoutRoomIsGivenNoStateAndThoseOfOthersStay) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), own(4, 0, 8), own(4, 1, 8), copied(4, 2, 8)});
  has(5, {own(5, 2, 9), own(5, 2, 7)});
  has(7, {own(7, 3, 9), own(7, 3, 8)});
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 4, 7}));
  says(7, 9, 2, "no memory is left", true);
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state().step, -1);
  EXPECT_THAT(ladder.tell(), HasSubstr("step 9 of attempt 1, rank 2: no memory is left"));
}

TEST_F(LadderTest, ANodeWithoutRoomStartsFromWhatItHas) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), own(4, 0, 8), own(4, 1, 8)});
  has(7, {own(7, 3, 9), own(7, 2, 8), own(7, 3, 8)});
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 4, 7}));
  says(7, 9, 2, "no memory is left", true);
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state(), (StateName{8, 1}));
}

TEST_F(LadderTest, GivesUpAMoveThatTakesTooLong) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), own(4, 0, 8), own(4, 1, 8)});
  has(7, {own(7, 3, 9), own(7, 2, 8), own(7, 3, 8)});
  EXPECT_THAT(ladder.climb(facts), ElementsAre(StateMove{2, 4, 7}));
  facts.now = 130;
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_FALSE(ladder.settled());
  ladder.extend_deadlines(5);  // this process was stopped
  facts.now = 135;
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_FALSE(ladder.settled());
  facts.now = 135.1;
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state(), (StateName{8, 1}));
  EXPECT_THAT(ladder.tell(), HasSubstr("was not moved within 30 s"));
}

TEST_F(LadderTest, StartsFromNoneWhereNoneIsTrusted) {
  facts.trusted = false;
  ladder.has(4, {{0, 9, 1, 4, false}});
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state().step, -1);
  EXPECT_STREQ(ladder.level(), "shared");
  EXPECT_EQ(ladder.tell(), "no state in memory is trusted");
}

TEST_F(LadderTest, StartsFromACheckpointThatIsNewer) {
  facts.durable_step = 10;
  ladder.has(4, {{0, 9, 1, 4, false}});
  ladder.climb(facts);
  EXPECT_EQ(ladder.tell(), "no state of all ranks is as new as the checkpoint of step 10");
}

TEST_F(LadderTest, TakesAnOlderStateWhereTheCheckpointsThatAreNewerAreDamaged) {
  facts.durable_step = 10;
  has(4, {own(4, 0, 9), own(4, 1, 9)});
  has(7, {own(7, 2, 9), own(7, 3, 9)});
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  ASSERT_TRUE(ladder.settled());
  ladder.tell();
  ASSERT_EQ(ladder.state().step, -1);
  EXPECT_FALSE(ladder.reopen(facts)) << "nothing else is known";
  facts.durable_step = 8;
  ASSERT_TRUE(ladder.reopen(facts));
  EXPECT_FALSE(ladder.settled());
  EXPECT_THAT(ladder.climb(facts), IsEmpty());
  EXPECT_TRUE(ladder.settled() && ladder.news());
  EXPECT_EQ(ladder.state(), (StateName{9, 1}));
  EXPECT_THAT(ladder.tell(), HasSubstr("newer are damaged"));
  EXPECT_FALSE(ladder.reopen(facts)) << "it starts from no checkpoint";
}

TEST_F(LadderTest, PassesOverAStateWithWhichTheProgramEnds) {
  has(4, {own(4, 0, 9), own(4, 1, 9), own(4, 0, 8), own(4, 1, 8)});
  has(7, {own(7, 2, 9), own(7, 3, 9), own(7, 2, 8), own(7, 3, 8)});
  facts.refused = {{9, 1}};
  ladder.climb(facts);
  EXPECT_EQ(ladder.state(), (StateName{8, 1}));
  EXPECT_EQ(ladder.tell(),
            "step 9 of attempt 1 is passed over: the program has ended with it again and again");
}

TEST_F(LadderTest, ForgetsWhatALostNodeHas) {
  has(4, {own(4, 0, 9), own(4, 1, 9), copied(4, 2, 9), copied(4, 3, 9)});
  ladder.lost(4);
  EXPECT_TRUE(ladder.settled());
  EXPECT_EQ(ladder.state().step, -1);
}

// --- in the supervisor ---

std::vector<test::FakeCluster::json> choices_of(const test::FakeCluster& c) {
  std::vector<test::FakeCluster::json> out;
  for (const auto& event : c.events)
    if (event.at("event") == "state_chosen") out.push_back(event);
  return out;
}

/// Six ranks on three nodes have it, and the next node a copy.
void seal_step_7(test::FakeCluster& c) {
  for (int rank = 0; rank < 6; ++rank) {
    c.agent(rank / 2).sealed.push_back({rank, 7, 1, 6, false});
    c.agent((rank / 2 + 1) % 3).sealed.push_back({rank, 7, 1, 6, true});
  }
}

TEST(RestoreLadder, ALostNodesRanksStartFromCopies) {
  test::FakeCluster c(test::Shape{.reports = false});
  std::vector<Launch> launched;
  c.on_launch = [&](const Launch& what) { launched.push_back(what); };
  ASSERT_TRUE(c.until(Stage::running));
  seal_step_7(c);
  c.kill(2);
  ASSERT_TRUE(c.until([&] { return launched.size() == 2; }, 20));
  EXPECT_EQ(launched[0].from.sealed_step, -1);
  EXPECT_EQ(sealed_of(launched[1]), (StateName{7, 1}));
  EXPECT_EQ(launched[1].from.sealed_level, "partner");
  const int spare = launched[1].placement[2];
  EXPECT_THAT(c.fetched, ElementsAre(StateMove{4, 0, spare}, StateMove{5, 0, spare}));
  ASSERT_EQ(choices_of(c).size(), 1u);
  EXPECT_EQ(choices_of(c)[0].at("step"), 7);
  EXPECT_EQ(choices_of(c)[0].at("moved"), 2);
}

/// A node's states may be a hundred gigabytes.
TEST(RestoreLadder, AStateThatComesSlowlyIsWaitedFor) {
  test::FakeCluster c(test::Shape{.reports = false});
  std::vector<Launch> launched;
  c.on_launch = [&](const Launch& what) { launched.push_back(what); };
  ASSERT_TRUE(c.until(Stage::running));
  seal_step_7(c);
  for (int n = 3; n < 5; ++n) c.agent(n).fetches_long = true;
  c.kill(2);
  ASSERT_FALSE(c.until([&] { return launched.size() == 2; }, config::Supervise().start_s + 60));
  ASSERT_EQ(c.fetched.size(), 2u) << "and nothing else was tried";
  c.tell(c.fetched[0].to, [&](Supervisor& s) { s.state_fetched(c.fetched[0].to, {2, 7, 1, -1, ""}); });
  ASSERT_TRUE(c.until([&] { return launched.size() == 2; }, 20));
  EXPECT_EQ(sealed_of(launched[1]), (StateName{7, 1}));
}

TEST(RestoreLadder, AnAttemptStartsFromNothingWhereTheCopyCannotBeFetched) {
  test::FakeCluster c(test::Shape{.reports = false});
  std::vector<Launch> launched;
  c.on_launch = [&](const Launch& what) { launched.push_back(what); };
  ASSERT_TRUE(c.until(Stage::running));
  seal_step_7(c);
  for (int n = 3; n < 5; ++n) c.agent(n).fetches = "it is damaged";
  c.kill(2);
  ASSERT_TRUE(c.until([&] { return launched.size() == 2; }, 20));
  EXPECT_EQ(launched[1].from.sealed_step, -1);
  ASSERT_EQ(choices_of(c).size(), 1u);
  EXPECT_EQ(choices_of(c)[0].at("level"), "shared");
  EXPECT_THAT(choices_of(c)[0].at("note").get<std::string>(), HasSubstr("it is damaged"));
}

struct DamagedCheckpoints : testing::Test {
  test::FakeCluster c{test::Shape{.reports = false}};
  std::vector<Launch> launched;
  /// All ranks have the state of step 7 in memory.
  void lose_a_rank(std::vector<std::pair<std::int64_t, std::string>> damaged, bool left,
                   const std::vector<std::int64_t>& durable = {5, 10}) {
    c.on_launch = [this](const Launch& what) { launched.push_back(what); };
    ASSERT_TRUE(c.until(Stage::running));
    for (const std::int64_t step : durable)
      c.tell(0, [step](Supervisor& s) { s.checkpoint_decided({1, step, true, ""}, ""); });
    seal_step_7(c);
    c.run(0.2);
    ASSERT_EQ(c.leader->state().durable_step, 10);
    c.damaged = std::move(damaged);
    c.checkpoints_left = left;
    c.end_rank(2, 1);
    c.until([&] { return launched.size() == 2 || c.exit_code; }, 20);
  }
  int starts() const {
    return static_cast<int>(std::count_if(c.events.begin(), c.events.end(), [](const auto& event) {
      return event.at("event") == "attempt_started" && event.at("attempt") == 2;
    }));
  }
};

TEST_F(DamagedCheckpoints, OlderThanTheStateInMemoryIsTheNextOne) {
  lose_a_rank({{10, "another digest"}}, true);
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(sealed_of(launched[1]), (StateName{7, 1}));
  EXPECT_THAT(launched[1].from.durable_steps, ElementsAre(5));
  EXPECT_EQ(choices_of(c).back().at("step"), 7);
  EXPECT_EQ(starts(), 1);
}

TEST_F(DamagedCheckpoints, AllOfThem) {
  lose_a_rank({{10, "another digest"}, {5, "cut off"}}, false);
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(sealed_of(launched[1]), (StateName{7, 1}));
  EXPECT_EQ(c.leader->state().durable_step, 10) << "the next job must not begin at step 0";
}

TEST_F(DamagedCheckpoints, NewerThanTheStateInMemoryIsTheNextOne) {
  lose_a_rank({{10, "another digest"}}, true, {5, 8, 10});
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(launched[1].from.sealed_step, -1);
  EXPECT_EQ(c.leader->state().durable_step, 8);
}

struct NoRoomTest : testing::Test {
  test::FakeCluster c{test::Shape{.reports = false}};
  std::vector<Launch> launched;
  void lose_a_node_with_full_spares(std::initializer_list<int> full) {
    c.on_launch = [this](const Launch& what) { launched.push_back(what); };
    ASSERT_TRUE(c.until(Stage::running));
    seal_step_7(c);
    for (const int n : full) {
      c.agent(n).fetches = "no memory is left";
      c.agent(n).full = true;
    }
    c.kill(2);
    ASSERT_TRUE(c.until([&] { return launched.size() == 2; }, 20));
  }
};

TEST_F(NoRoomTest, ASpareWithoutRoomForTheStateIsPassedOver) {
  lose_a_node_with_full_spares({4});
  EXPECT_EQ(launched[1].placement[2], 3);
  EXPECT_EQ(sealed_of(launched[1]), (StateName{7, 1}));
  EXPECT_EQ(launched[1].from.sealed_level, "partner");
  EXPECT_THAT(c.last("node_evicted").at("evidence").get<std::string>(), HasSubstr("no memory is left"));
  EXPECT_EQ(c.last("node_evicted").at("node"), "n4");
}

TEST_F(NoRoomTest, WithoutAnotherSpareTheAttemptStartsFromNone) {
  lose_a_node_with_full_spares({3, 4});
  EXPECT_EQ(launched[1].placement[2], 3) << "the first one that was tried has left";
  EXPECT_EQ(launched[1].from.sealed_step, -1);
  EXPECT_THAT(choices_of(c).back().at("note").get<std::string>(), HasSubstr("no memory is left"));
}

}  // namespace
}  // namespace holdfast::launcher

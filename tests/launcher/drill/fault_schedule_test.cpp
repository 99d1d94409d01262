// The times and targets of faults.
#include "launcher/drill/fault_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/launcher/drill/synthetic_run.hpp"

namespace holdfast::launcher {
namespace {

using test::case_of;
using test::SyntheticRun;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(FaultSchedule, WaitsForItsStep) {
  FaultSchedule schedule(case_of({"node_killed at step 30"}), 1);
  SyntheticRun run;
  EXPECT_THAT(schedule.due(run.view), IsEmpty());
  run.begins(100);
  EXPECT_THAT(schedule.due(run.at(103, 29)), IsEmpty());
  const auto now = schedule.due(run.at(104, 30));
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_STREQ(now[0].fault->name, "node_killed");
  ASSERT_THAT(now[0].nodes, SizeIs(1));
  EXPECT_TRUE(now[0].nodes[0] == "n1" || now[0].nodes[0] == "n2") << "an active node, never the batch host";
  EXPECT_FALSE(schedule.over());
  schedule.record(now[0], 104, run.view);
  EXPECT_TRUE(schedule.over()) << "for good: nothing is taken back";
  EXPECT_THAT(schedule.due(run.at(105, 31)), IsEmpty());
}

TEST(FaultSchedule, SameSeedSameChoices) {
  std::set<std::int64_t> steps;
  std::set<std::string> nodes;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<std::pair<std::int64_t, std::string>> seen;
    for (int again = 0; again < 2; ++again) {
      FaultSchedule schedule(case_of({"node_killed at step 20-60"}), seed);
      SyntheticRun run;
      run.begins(100);
      for (std::int64_t step = 1; step <= 60; ++step) {
        const auto now = schedule.due(run.at(102 + static_cast<double>(step), step));
        if (now.empty()) continue;
        seen.emplace_back(step, now[0].nodes[0]);
        schedule.record(now[0], run.view.now, run.view);
      }
    }
    ASSERT_EQ(seen.size(), 2u) << "each schedule injects once, within its range";
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_TRUE(seen[0].first >= 20 && seen[0].first <= 60);
    steps.insert(seen[0].first), nodes.insert(seen[0].second);
  }
  EXPECT_GT(steps.size(), 15u);
  EXPECT_THAT(nodes, ElementsAre("n1", "n2"));
}

TEST(FaultSchedule, TakesBackAfterItsTime) {
  FaultSchedule schedule(case_of({"node_frozen for 5 s at step 10"}), 1);
  SyntheticRun run;
  run.begins(100);
  const auto now = schedule.due(run.at(110, 10));
  ASSERT_THAT(now, SizeIs(1));
  schedule.record(now[0], 110, run.view);
  EXPECT_THAT(schedule.due(run.at(114.9, 11)), IsEmpty());
  EXPECT_FALSE(schedule.over());
  // Also when the run is over by then: the next case needs the node.
  run.finishes(115, 1, 20, "d");
  const auto back = schedule.due(run.at(115, 20));
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_TRUE(back[0].undo);
  EXPECT_EQ(back[0].nodes, now[0].nodes);
  schedule.record(back[0], 115, run.view);
  EXPECT_TRUE(schedule.over());
}

TEST(FaultSchedule, ThePromotedSpareWhileRanksStart) {
  FaultSchedule schedule(case_of({"node_killed at step 10", "promoted_killed when starting"}), 3);
  SyntheticRun run;
  run.begins(100);
  auto now = schedule.due(run.at(110, 10));
  ASSERT_THAT(now, SizeIs(1));
  const std::string killed = now[0].nodes[0], other = killed == "n1" ? "n2" : "n1";
  schedule.record(now[0], 110, run.view);
  EXPECT_THAT(schedule.due(run.at(111, 10)), IsEmpty()) << "the start of the first attempt was earlier";
  run.event(112, {{"event", "node_lost"}, {"node", killed}});
  run.ends(112, 1, "node lost", 10);
  run.event(112, {{"event", "attempt_planned"}, {"attempt", 2}, {"placement", {"n3", other}}});
  EXPECT_THAT(schedule.due(run.view), IsEmpty());
  run.event(112.5, {{"event", "attempt_started"}, {"attempt", 2}});
  now = schedule.due(run.view);
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_THAT(now[0].nodes, ElementsAre("n3"));
}

TEST(FaultSchedule, Aims) {
  SyntheticRun run;
  run.begins(100);
  const auto hit = [&](const std::string& words) {
    FaultSchedule schedule(case_of({words + " at step 10"}), 5);
    const auto now = schedule.due(run.at(110, 10));
    return now.empty() ? ChosenFault{} : now[0];
  };
  EXPECT_THAT(hit("node_killed on leader").nodes, ElementsAre("n0"));
  EXPECT_THAT(hit("batch_host_killed").nodes, ElementsAre("n0"));
  EXPECT_THAT(hit("spare_killed").nodes, ElementsAre("n3"));
  EXPECT_THAT(hit("two_nodes_killed").nodes, ElementsAre("n1", "n2"));
  EXPECT_THAT(hit("half_cut").nodes, SizeIs(2));
  EXPECT_THAT(hit("node_cut on every").nodes, SizeIs(4));
  EXPECT_THAT(hit("slurmctld_down").nodes, IsEmpty());
  EXPECT_EQ(hit("promoted_killed").fault, nullptr) << "nobody was";
  const ChosenFault rank = hit("rank_killed");
  ASSERT_THAT(rank.nodes, SizeIs(1));
  EXPECT_EQ(rank.rank / 2, rank.nodes[0] == "n1" ? 0 : 1) << "a rank of that node's slot";
}

TEST(FaultSchedule, ASoakWaitsUntilTheRunIsWellAgain) {
  DrillCase plan = case_of({"node_returns for 4 s"});
  plan.draw = 2;
  plan.gap = {5, 5};
  FaultSchedule schedule(plan, 1);
  SyntheticRun run;
  run.begins(100);
  EXPECT_THAT(schedule.due(run.at(103, 1)), IsEmpty());
  auto now = schedule.due(run.at(104, 6));
  ASSERT_THAT(now, SizeIs(1));
  const std::string killed = now[0].nodes[0], other = killed == "n1" ? "n2" : "n1";
  schedule.record(now[0], 104, run.view);
  run.event(106, {{"event", "node_lost"}, {"node", killed}});
  run.ends(106, 1, "node lost", 7);
  run.attempt(106, 2, {killed == "n1" ? "n3" : "n1", killed == "n1" ? "n2" : "n3"}, 7);
  now = schedule.due(run.at(109, 8));
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_TRUE(now[0].undo);
  schedule.record(now[0], 109, run.view);
  EXPECT_THAT(schedule.due(run.at(110, 9)), IsEmpty());
  EXPECT_THAT(schedule.due(run.at(111, 30)), IsEmpty())
      << "it needs a spare, and there is none but the batch host";
  run.event(112, {{"event", "node_returned"}, {"node", killed}});
  now = schedule.due(run.at(113, 31));
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_FALSE(now[0].undo);
  EXPECT_NE(now[0].nodes[0], killed) << "it is a spare now";
}

TEST(FaultSchedule, TellsWhatNeverCame) {
  FaultSchedule schedule(case_of({"rank_killed at step 10", "promoted_killed when starting"}), 1);
  SyntheticRun run;
  run.begins(100);
  const auto now = schedule.due(run.at(110, 10));
  schedule.record(now.at(0), 110, run.view);
  run.finishes(120, 1, 20, "d");
  EXPECT_THAT(schedule.due(run.view), IsEmpty());
  EXPECT_THAT(schedule.missed(), ElementsAre("promoted_killed"));
}

}  // namespace
}  // namespace holdfast::launcher

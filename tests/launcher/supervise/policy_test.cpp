// Which node replaces which, and the fields of the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "launcher/supervise/budget_table.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;
using testing::ElementsAre;

// Which node replaces which (policy).

Roster two_units() {
  Shape setup{.slots = 3, .spares = 5, .units = {"A", "B", "B", "A", "A", "B", "B", "A"}};
  return test::roster_of(setup);  // batch host: n3, in A
}

// One row of the table after another: what holds, what the answer is, and that the rows above do not.

struct TableCase {
  const char* because;
  PolicyFacts facts;
  PolicyAction answer;
  int exit_code;
};
PolicyFacts facts(const std::function<void(PolicyFacts&)>& change) {
  PolicyFacts f;
  change(f);
  return f;
}
const std::vector<TableCase>& cases() {
  using enum config::WhenShort;
  static const std::vector<TableCase> all = {
      {"exit code", facts([](PolicyFacts& f) { f.final_code = 3, f.short_of_nodes = true; }),
       PolicyAction::stop, 0},
      {"same way on any node", facts([](PolicyFacts& f) { f.same_again = f.spares_suffice = true; }),
       PolicyAction::stop, 93},
      {"still cannot be read",
       facts([](PolicyFacts& f) { f.later = f.short_of_nodes = f.spares_suffice = true; }),
       PolicyAction::requeue, 75},
      {"a budget of the cause is used up", facts([](PolicyFacts& f) {
         f.used_up = &budget_table().front();
         f.short_of_nodes = f.spares_suffice = true;
       }),
       PolicyAction::stop, 0},
      {"a better one is available",
       facts([](PolicyFacts& f) { f.suspect = f.better_node = f.spares_suffice = true; }),
       PolicyAction::substitute, 0},
      {"a node is unfit before the first start", facts([](PolicyFacts& f) { f.fitter_nodes = true; }),
       PolicyAction::substitute, 0},
      {"every slot has its node", facts([](PolicyFacts& f) { f.suspect = f.spares_suffice = true; }),
       PolicyAction::restart, 0},
      {"every slot has its node", PolicyFacts{}, PolicyAction::restart, 0},
      {"a spare for every slot", facts([](PolicyFacts& f) {
         f.short_of_nodes = f.spares_suffice = f.suspect = f.better_node = f.can_shrink = f.fitter_nodes =
             true;
       }),
       PolicyAction::substitute, 0},
      {"when_short is stop", facts([](PolicyFacts& f) {
         f.short_of_nodes = f.can_shrink = true;
         f.cheaper = Cheaper::shrink;
         f.when_short = stop;
       }),
       PolicyAction::stop, 5},
      {"when_short is shrink",
       facts([](PolicyFacts& f) { f.short_of_nodes = f.can_shrink = true, f.when_short = shrink; }),
       PolicyAction::shrink, 0},
      {"costs less than the queue",
       facts([](PolicyFacts& f) { f.short_of_nodes = f.can_shrink = true, f.cheaper = Cheaper::shrink; }),
       PolicyAction::shrink, 0},
      {"cannot shrink further", facts([](PolicyFacts& f) { f.short_of_nodes = true, f.when_short = shrink; }),
       PolicyAction::stop, 5},
      {"no fit spare node is left", facts([](PolicyFacts& f) { f.short_of_nodes = f.can_shrink = true; }),
       PolicyAction::requeue, 75},
      {"no fit spare node is left", facts([](PolicyFacts& f) {
         f.short_of_nodes = f.can_shrink = true;
         f.cheaper = Cheaper::shrink;
         f.when_short = requeue;
       }),
       PolicyAction::requeue, 75},
  };
  return all;
}

TEST(Policy, RowsOneByOne) {
  std::set<const PolicyRow*> seen;
  for (const auto& c : cases()) {
    const PolicyRow& row = row_for(c.facts);
    EXPECT_THAT(row.when, testing::HasSubstr(c.because));
    EXPECT_EQ(row.answer, c.answer) << c.because;
    EXPECT_EQ(row.exit_code, c.exit_code) << c.because;
    seen.insert(&row);
  }
  EXPECT_EQ(seen.size(), policy_table().size()) << "a row that no case reaches";
}

Decision decided(const Roster& roster, const RunState& state, const Failure& failure,
                 const config::Supervise& limits = {}, const Shrinking& shrinking = {}, double hours = -1,
                 bool worth_saving = false, std::vector<int> placement = {}) {
  if (placement.empty()) placement = roster.first_placement;
  return decide({roster, limits, shrinking, state, placement, {}, hours}, failure, worth_saving);
}

Failure failure_of(Failure::Kind kind, int node, int status = 0) {
  Failure f;
  f.kind = kind;
  f.node = node;
  f.status = status;
  f.evidence = "evidence";
  return f;
}

TEST(Policy, ASpareForEverySlot) {
  RunState state;
  state.lost = {"n0", "n2"};
  const Decision d = decided(two_units(), state, failure_of(Failure::Kind::node_lost, 0));
  EXPECT_EQ(d.answer, PolicyAction::substitute);
  EXPECT_THAT(d.placement, ElementsAre(4, 1, 5));
  ASSERT_EQ(d.promotions.size(), 2u);
  EXPECT_EQ(d.promotions[1].from, 2);
  EXPECT_EQ(d.promotions[1].to, 5);
}

TEST(Policy, ANodeThatFailsAgainIsExchangedForOneThatDidNot) {
  RunState state;
  const Failure again = failure_of(Failure::Kind::rank_exited, 1, 1);
  state.failures["n1"] = 1;
  EXPECT_EQ(decided(two_units(), state, again).answer, PolicyAction::restart);
  state.failures["n1"] = 2;
  const Decision d = decided(two_units(), state, again);
  EXPECT_EQ(d.answer, PolicyAction::substitute);
  EXPECT_THAT(d.placement, ElementsAre(0, 5, 2));
  for (int n = 3; n < 8; ++n) state.suspects.insert("n" + std::to_string(n));
  EXPECT_EQ(decided(two_units(), state, again).answer, PolicyAction::restart)
      << "one suspect is as good as another";
  Failure gpu = again;
  gpu.blame = Blame::node;
  state.failures.clear();
  state.suspects.clear();
  EXPECT_EQ(decided(two_units(), state, gpu).answer, PolicyAction::substitute)
      << "its hardware: once is enough";
  gpu.ends_node = true;
  state.lost = {"n1"};
  EXPECT_THAT(decided(two_units(), state, gpu).placement, ElementsAre(0, 5, 2));
}

TEST(Policy, FinalCodesAndBudgets) {
  RunState state;
  for (const int code : {2, 3, 4, 93}) {
    Failure failure = failure_of(Failure::Kind::rank_exited, 1, code);
    EXPECT_FALSE(decided(two_units(), state, failure).stop) << code << " of a program that is not ours";
    failure.our_codes = true;
    EXPECT_EQ(decided(two_units(), state, failure).stop->exit_code, code);
  }
  Failure again = failure_of(Failure::Kind::rank_exited, 1, 1);
  again.same_again = true;
  EXPECT_EQ(decided(two_units(), state, again).stop->exit_code, 93);
  config::Supervise limits;
  state.worked = true;
  state.false_starts = 1;
  state.last_at = state.false_since + limits.start_s - 1;
  EXPECT_FALSE(decided(two_units(), state, again).stop) << "what it needs may come back";
  state.last_at += 1;
  EXPECT_THAT(decided(two_units(), state, again).stop->why, testing::HasSubstr("tried again for 60 s"));
  state.false_starts = 0;
  limits.max_without_checkpoint = 4;
  state.no_progress = 4;
  const Failure crashed = failure_of(Failure::Kind::rank_exited, 1, 1);
  const RunOutcome outcome = *decided(two_units(), state, crashed, limits).stop;
  EXPECT_EQ(outcome.exit_code, 93);
  EXPECT_EQ(outcome.status, "failed");
  EXPECT_THAT(outcome.why, testing::HasSubstr("4 attempts in a row"));
  EXPECT_THAT(outcome.why, testing::HasSubstr("; last: evidence"));
  for (const auto kind : {Failure::Kind::node_lost, Failure::Kind::evicted, Failure::Kind::start_failed})
    EXPECT_FALSE(decided(two_units(), state, failure_of(kind, 1), limits).stop) << name_of(kind);
  state.setbacks = 7;
  state.setback_s = 600;
  Failure storage = crashed;
  storage.blame = Blame::shared;
  const RunOutcome waited = *decided(two_units(), state, storage, limits).stop;
  EXPECT_EQ(waited.exit_code, 75);
  EXPECT_EQ(waited.status, "requeued");
  EXPECT_THAT(waited.why, testing::HasSubstr("ended 7 attempts in a row before a new step, within 600 s"));
  EXPECT_FALSE(decided(two_units(), state, failure_of(Failure::Kind::node_lost, 1), limits).stop)
      << "that costs a node, and comes to an end by itself";
}

/// 6 nodes of 2 ranks in groups of 4: two nodes are a replica.
Shrinking pairs() {
  return {.nodes = 6, .together = 2, .ranks_per_node = 2, .group = 4, .parts = 6, .steps = 1000};
}
Roster six(int spares = 0) { return test::roster_of({.slots = 6, .spares = spares, .units = {}}); }

TEST(Policy, ShrinksByWholeReplicas) {
  RunState state;
  state.lost = {"n1"};
  config::Supervise limits;
  const Failure lost = failure_of(Failure::Kind::node_lost, 1);
  limits.min_nodes = 2;
  limits.when_short = config::WhenShort::shrink;
  Decision d = decided(six(), state, lost, limits, pairs());
  EXPECT_EQ(d.answer, PolicyAction::shrink);
  EXPECT_THAT(d.placement, ElementsAre(4, 5, 2, 3)) << "the last replica moves into the gap";
  state.lost = {"n1", "n3"};
  d = decided(six(), state, lost, limits, pairs());
  EXPECT_THAT(d.placement, ElementsAre(0, 2, 4, 5)) << "what is left of two replicas makes one";
  state.lost = {"n0", "n1", "n2", "n3"};
  EXPECT_THAT(decided(six(), state, lost, limits, pairs()).placement, ElementsAre(4, 5));
  limits.min_nodes = 4;
  EXPECT_EQ(decided(six(), state, lost, limits, pairs()).stop->exit_code, 5);
  limits.when_short = config::WhenShort::automatic;
  EXPECT_EQ(decided(six(), state, lost, limits, pairs()).stop->exit_code, 75);
  limits.min_nodes = 0;
  d = decided(six(), state, lost, limits, pairs(), -1, true);
  EXPECT_EQ(d.answer, PolicyAction::requeue);
  EXPECT_FALSE(d.stop) << "the nodes that are left hold all of the state: they save it first";
  EXPECT_THAT(d.placement, ElementsAre(4, 5));
  state.lost.insert("n4");
  EXPECT_EQ(decided(six(), state, lost, limits, pairs(), -1, true).stop->exit_code, 75);
}

TEST(Policy, SaysWhySparesAreNotTaken) {
  using Fitness = control::NodeHealth::Fitness;
  RunState state;
  state.lost = {"n1"};
  const Roster roster = six(2);
  std::vector<NodeView> views(8);
  const auto why = [&](bool saves) {
    Decision d = decide({roster, {}, pairs(), state, roster.first_placement, views, -1},
                        failure_of(Failure::Kind::node_lost, 1), saves);
    EXPECT_EQ(d.answer, PolicyAction::requeue);
    return saves ? d.short_of : d.stop.value_or(RunOutcome{}).why;
  };
  views[6] = views[7] = {Fitness::ok, false, true};
  EXPECT_EQ(why(true), "no spare is fit (n6: it computes other bits; n7: it computes other bits)");
  EXPECT_EQ(
      why(false),
      "evidence; no spare is fit (n6: it computes other bits; n7: it computes other bits); the next job "
      "does without n1");
  views[7] = {};
  state.lost.insert("n2");
  EXPECT_THAT(why(false), testing::HasSubstr("; too few spares are fit (n6: it computes other bits)"));
  state.lost.insert({"n6", "n7"});
  EXPECT_THAT(why(false), testing::HasSubstr("; no spare node is left"));
}

TEST(Policy, AnUnfitNodeGivesItsSlotToAFitSpareBeforeTheFirstStartAlone) {
  const Roster roster = six(2);
  RunState state;
  std::vector<NodeView> views(8);
  views[1].fitness = views[3].fitness = views[6].fitness = control::NodeHealth::Fitness::critical;
  views[7].fitness = control::NodeHealth::Fitness::warning;
  const auto at_start = [&](bool first) {
    return decide({roster, {}, {}, state, roster.first_placement, views, -1, first},
                  failure_of(Failure::Kind::node_lost, -1), false);
  };
  Decision d = at_start(true);
  EXPECT_EQ(d.answer, PolicyAction::substitute);
  EXPECT_THAT(d.placement, ElementsAre(0, 7, 2, 3, 4, 5)) << "there is one fit spare for two";
  ASSERT_EQ(d.promotions.size(), 1u);
  EXPECT_EQ(at_start(false).answer, PolicyAction::restart);
  state.lost = {"n0"};
  EXPECT_THAT(at_start(true).placement, ElementsAre(7, 1, 2, 3, 4, 5))
      << "it has to take the lost node's slot";
  views[6].fitness = control::NodeHealth::Fitness::ok;
  EXPECT_THAT(at_start(true).placement, ElementsAre(6, 7, 2, 3, 4, 5));
  views[6].fitness = views[7].fitness = control::NodeHealth::Fitness::critical;
  EXPECT_THAT(at_start(true).placement, ElementsAre(7, 1, 2, 3, 4, 5)) << "better than nothing";
}

TEST(Policy, TheCheaperOfTheTwo) {
  RunState state;
  state.lost = {"n1"};
  config::Supervise limits;
  limits.min_nodes = 2;
  const Failure lost = failure_of(Failure::Kind::node_lost, 1);
  EXPECT_EQ(decided(six(), state, lost, limits, pairs(), 0.05).answer, PolicyAction::shrink);
  EXPECT_EQ(decided(six(), state, lost, limits, pairs(), 50).answer, PolicyAction::requeue);
  EXPECT_EQ(decided(six(), state, lost, limits, pairs()).answer, PolicyAction::requeue) << "nothing is known";
}

TEST(Policy, GrowsBackByWholeReplicas) {
  RunState state;
  const Failure failed = failure_of(Failure::Kind::rank_exited, 4, 1);
  Decision d = decided(six(), state, failed, {}, pairs(), -1, false, {4, 5, 2, 3});
  EXPECT_EQ(d.answer, PolicyAction::restart);
  EXPECT_THAT(d.placement, ElementsAre(4, 5, 2, 3, 1, 0)) << "the batch host last";
  state.lost = {"n1"};
  EXPECT_THAT(decided(six(), state, failed, {}, pairs(), -1, false, {4, 5, 2, 3}).placement,
              ElementsAre(4, 5, 2, 3));
}

TEST(Policy, EveryFailureHasAName) {
  for (int kind = 0; kind <= static_cast<int>(Failure::Kind::corrupted); ++kind)
    EXPECT_STRNE(name_of(static_cast<Failure::Kind>(kind)), "");
  for (int stage = 0; stage <= static_cast<int>(Stage::over); ++stage)
    EXPECT_STRNE(name_of(static_cast<Stage>(stage)), "");
}

// The fields of the result.

TEST(Result, TwoFailuresBeforeTheNextStep) {
  // The second attempt ends before it restores anything: the lost time belongs to the first, and it took
  // until the third.
  FakeCluster c({.slots = 3, .spares = 3});
  ASSERT_TRUE(c.until([&] { return c.stage() == Stage::running && c.rank(0).step == 17; }, 20));
  c.agent(4).starts = false;
  c.kill(0);
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2 && c.stage() == Stage::starting; }, 20));
  c.kill(4);
  ASSERT_TRUE(c.training(3));
  const json attempts = c.result()["attempts"];
  EXPECT_EQ(attempts[0]["last_step"], 17);
  EXPECT_EQ(attempts[0]["lost_steps"], 7);
  EXPECT_GT(attempts[0]["recovered_s"], attempts[1]["recovered_s"]);
  EXPECT_GT(attempts[0]["recovered_s"], 2.0) << "the second node's silence is part of it";
  EXPECT_EQ(attempts[1]["restored_from"], nullptr);
  EXPECT_EQ(attempts[1]["lost_steps"], 0);
  EXPECT_EQ(attempts[2]["restored_from"]["step"], 10);
}

TEST(Result, NewAllocationForgetsTheOldNodes) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.kill(1);
  ASSERT_TRUE(c.training(2));
  c.end_rank(0, 2);
  c.run(2);
  ASSERT_EQ(c.exit_code, 2);
  c.exit_code.reset();
  c.roster.job = "7.1";  // requeued
  for (int n = 0; n < 5; ++n) c.kill(n), c.revive(n);
  c.new_leader(3);
  EXPECT_TRUE(c.leader->state().lost.empty());
  EXPECT_TRUE(c.leader->state().suspects.empty());
  ASSERT_TRUE(c.training(3));
  EXPECT_EQ(c.result()["status"], "running");
}

/// The nodes lose power, and the job runs again much later: that time is nobody's work.
TEST(Result, GoodputLeavesOutTheGapBetweenJobs) {
  FakeCluster c({.steps = 400});
  ASSERT_TRUE(c.training(1));
  c.run(10);
  c.roster.job = "7.1";
  for (int n = 0; n < 5; ++n) c.kill(n);
  c.run(400);
  for (int n = 0; n < 5; ++n) c.revive(n);
  c.new_leader(3);
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 60));
  const json result = c.result();
  EXPECT_LT(result["goodput"], 0.12) << "some 40 s of steps in 450 s";
  EXPECT_GT(result["goodput"], 0.05);
}

TEST(Result, GoodputLeavesOutHangs) {
  FakeCluster c({.steps = 400});
  ASSERT_TRUE(c.training(1));
  c.rank(3).hangs = true;  // found after 600 s
  ASSERT_TRUE(c.until([&] { return c.leader->attempt() == 2; }, 700));
  ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 60));
  EXPECT_LT(c.result()["goodput"], 0.12);
}

TEST(Result, AttemptOfAnEndedAllocationIsOver) {
  FakeCluster c;
  ASSERT_TRUE(c.training(1));
  c.roster.job = "7.1";  // the job was requeued in the midst of it; its agents need their time to come up
  for (int n = 0; n < 5; ++n) c.kill(n);
  for (const int n : {2, 3, 4}) c.revive(n);
  c.new_leader(3);
  c.run(10);
  EXPECT_TRUE(c.all("node_lost").empty());
  for (int n = 0; n < 5; ++n) c.revive(n);
  ASSERT_TRUE(c.training(2));
  EXPECT_EQ(c.result()["attempts"][0]["cause"], "allocation ended");
  EXPECT_NE(c.result()["attempts"][0]["recovered_s"], nullptr);
  EXPECT_TRUE(c.all("attempt_adopted").empty());
}

}  // namespace
}  // namespace holdfast::launcher

// Which budget a failure spends, and what the run ends with when it is used up.
#include "launcher/supervise/budget_table.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using testing::ElementsAre;
using testing::HasSubstr;
using EndedBy = Failure::Kind;

Failure ended_by(EndedBy kind, const std::function<void(Failure&)>& change = {}) {
  Failure f;
  f.kind = kind;
  f.node = 1;
  f.status = kind == EndedBy::rank_exited ? 1 : 0;
  if (change) change(f);
  return f;
}

TEST(Budgets, EachFailureHasItsKindOfCause) {
  const auto blamed = [](Blame blame) { return [blame](Failure& f) { f.blame = blame; }; };
  const auto in = [](control::Phase phase) { return [phase](Failure& f) { f.phase = phase; }; };
  using enum CauseKind;
  const struct {
    Failure failure;
    CauseKind kind;
  } cases[] = {
      {ended_by(EndedBy::rank_exited), program},
      {ended_by(EndedBy::rank_exited, blamed(Blame::program)), program},
      {ended_by(EndedBy::rank_exited, blamed(Blame::shared)), infrastructure},
      {ended_by(EndedBy::rank_exited, blamed(Blame::node)), infrastructure},  // what the node lacks
      {ended_by(EndedBy::rank_exited, [](Failure& f) { f.blame = Blame::node, f.ends_node = true; }), node},
      {ended_by(EndedBy::rank_exited, blamed(Blame::claim)), infrastructure},
      {ended_by(EndedBy::rank_exited, [](Failure& f) { f.blame = Blame::claim, f.unproven = true; }),
       program},
      {ended_by(EndedBy::rank_exited, [](Failure& f) { f.blame = Blame::node, f.evictions_spent = true; }),
       program},
      {ended_by(EndedBy::rank_exited, [](Failure& f) { f.lost_peers = true; }), infrastructure},
      {ended_by(EndedBy::rank_exited, [](Failure& f) { f.status = 75; }), infrastructure},
      {ended_by(EndedBy::rank_hung, in(control::Phase::collective)), program},
      {ended_by(EndedBy::rank_hung, in(control::Phase::starting)), infrastructure},
      {ended_by(EndedBy::rank_hung, in(control::Phase::restoring)), infrastructure},
      {ended_by(EndedBy::rank_hung, in(control::Phase::checkpoint)), infrastructure},
      {ended_by(EndedBy::rank_hung, in(control::Phase::finishing)), infrastructure},
      {ended_by(EndedBy::start_failed), infrastructure},
      {ended_by(EndedBy::misplaced), infrastructure},
      {ended_by(EndedBy::leader_changed), infrastructure},
      {ended_by(EndedBy::node_lost), node},
      {ended_by(EndedBy::corrupted, blamed(Blame::node)), node},
      {ended_by(EndedBy::corrupted), program},
      {ended_by(EndedBy::evicted), planned},
  };
  for (const auto& c : cases)
    EXPECT_EQ(cause_kind_of(c.failure), c.kind)
        << name_of(c.failure.kind) << ", " << name_of(c.failure.blame) << ", " << c.failure.status;
}

TEST(Budgets, EachIsUsedUpAtItsLimitAndEndsTheRunAsItSays) {
  config::Supervise limits;
  limits.max_same_step = 3;
  limits.max_without_checkpoint = 4;
  limits.max_restarts = 5;
  limits.max_node_failures = 2;
  limits.max_evictions = 2;
  limits.infrastructure_s = 600;
  struct Spent {
    const char* limit;
    void (*almost)(RunState&);
    void (*at_limit)(RunState&);
    int exit_code;
    const char* says;
  };
  const Spent spent[] = {
      {"max_same_step", [](RunState& s) { s.same_step_count = 2; },
       [](RunState& s) { s.same_step_count = 3; }, 93, "3 attempts in a row ended at step"},
      {"max_without_checkpoint", [](RunState& s) { s.no_progress = 3; },
       [](RunState& s) { s.no_progress = 4; }, 93, "4 attempts in a row brought neither"},
      {"max_restarts", [](RunState& s) { s.restarts = 4; }, [](RunState& s) { s.restarts = 5; }, 1,
       "5 attempts have failed since the newest checkpoint"},
      {"max_node_failures", [](RunState& s) { s.failures["n1"] = 1; },
       [](RunState& s) { s.failures["n1"] = 2; }, 0, ""},
      {"max_evictions", [](RunState& s) { s.evictions["Xid 48"] = {"n0"}, s.evictions["Xid 79"] = {"n2"}; },
       [](RunState& s) {
         s.evictions["Xid 48"] = {"n0", "n2"};
       },
       0, ""},
      {"infrastructure_s", [](RunState& s) { s.setbacks = 1000, s.setback_s = 599; },
       [](RunState& s) { s.setbacks = 1, s.setback_s = 600; }, 75, "the infrastructure ended 1 attempts"},
      {"", nullptr, nullptr, 0, ""},
  };
  ASSERT_EQ(std::size(spent), budget_table().size()) << "a row without a case";
  for (std::size_t i = 0; i < std::size(spent); ++i) {
    const BudgetRow& row = budget_table()[i];
    const Spent& c = spent[i];
    ASSERT_STREQ(row.limit, c.limit);
    EXPECT_EQ(row.exit_code, c.exit_code) << c.limit;
    EXPECT_EQ(row.used_up == nullptr, row.budget == Budget::nothing) << c.limit;
    EXPECT_EQ(row.says == nullptr, row.exit_code == 0) << c.limit;
    if (!row.used_up) continue;
    RunState almost, at_limit;
    c.almost(almost), c.at_limit(at_limit);
    EXPECT_FALSE(row.used_up(almost, limits, "n1")) << c.limit;
    EXPECT_TRUE(row.used_up(at_limit, limits, "n1")) << c.limit;
    EXPECT_FALSE(row.used_up({}, limits, "n1")) << c.limit;
    for (const BudgetRow& other : budget_table()) {
      const bool ends = other.kind == row.kind && row.exit_code != 0;
      EXPECT_EQ(used_up(other.kind, at_limit, limits), ends ? &row : nullptr)
          << c.limit << " says nothing of " << name_of(other.kind);
    }
    if (row.says) {
      EXPECT_THAT(row.says(at_limit, limits), HasSubstr(c.says));
    }
  }
}

/// 93 keeps the job out of the queue for good: only the program's own fault that comes again may do so.
TEST(Budgets, OnlyTheProgramsEndForGood) {
  std::set<CauseKind> kinds;
  for (const BudgetRow& row : budget_table()) {
    kinds.insert(row.kind);
    const bool program = row.kind == CauseKind::program;
    EXPECT_TRUE(program || row.exit_code == 0 || row.exit_code == 75) << row.limit;
    EXPECT_EQ(row.kind == CauseKind::infrastructure, row.budget == Budget::time) << row.limit;
    EXPECT_EQ(row.kind == CauseKind::planned, row.budget == Budget::nothing) << row.limit;
  }
  EXPECT_EQ(kinds.size(), 4u) << "every kind has a row";
}

TEST(Budgets, TheManualShowsTheTable) {
  std::ostringstream manual;
  manual << std::ifstream(std::string(HOLDFAST_SOURCE_DIR) + "/docs/manual/failures.md").rdbuf();
  for (const BudgetRow& row : budget_table()) {
    const std::string limit = *row.limit ? fmt::format("`{}`", row.limit) : "";
    EXPECT_THAT(manual.str(),
                HasSubstr(fmt::format("| {} | {} | {} | {} | {} |\n", name_of(row.kind), name_of(row.budget),
                                      limit, row.spent_by, row.exhausted)));
  }
}

/// What shows on one healthy node after the other must not evict them all.
TEST(Budgets, ASignEvictsNoMoreThanHalfOfTheSparesOrAsSet) {
  const auto roster_with = [](int spares) { return test::roster_of({.slots = 4, .spares = spares}); };
  config::Supervise limits;
  EXPECT_EQ(max_evictions(roster_with(0), limits), 1);
  EXPECT_EQ(max_evictions(roster_with(1), limits), 1);
  EXPECT_EQ(max_evictions(roster_with(3), limits), 2);
  EXPECT_EQ(max_evictions(roster_with(16), limits), 8);
  limits.max_evictions = 2;
  EXPECT_EQ(max_evictions(roster_with(16), limits), 2);
  RunState state;
  state.evictions = {{"Xid 48", {"n0"}}, {"Xid 79", {"n0", "n1"}}};
  EXPECT_FALSE(evictions_spent("Xid 48", "n2", state, limits));
  EXPECT_TRUE(evictions_spent("Xid 79", "n2", state, limits));
  EXPECT_FALSE(evictions_spent("Xid 79", "n1", state, limits)) << "it was one of them";
  EXPECT_FALSE(evictions_spent("link_down", "n2", state, limits));
  EXPECT_THAT(why_kept("Xid 79", state), HasSubstr("Xid 79 has evicted n0, n1 already"));
}

TEST(Budgets, WaitsGrowToAMinute) {
  EXPECT_EQ(wait_after(0), 0);
  EXPECT_EQ(wait_after(1), 1);
  EXPECT_EQ(wait_after(6), 32);
  EXPECT_EQ(wait_after(1000), 60);
  EXPECT_EQ(wait_after_false(0), 0);
  EXPECT_EQ(wait_after_false(4), 8);
  EXPECT_EQ(wait_after_false(1000), 15);
}

// What is spent, as the record says it.

class Spending : public testing::Test {
 protected:
  void event(json e) {
    e["unix"] = at;
    apply(state, test::entry(e));
  }
  void job(const std::string& name) {
    event({{"event", "leader_elected"}, {"node", "n0"}, {"job", name}, {"term", ++term}});
  }
  /// An attempt of `seconds`.
  void ends(const std::string& kind, double seconds = 10, std::int64_t step = 0, int status = 1,
            std::int64_t begins_from = -1) {
    event({{"event", "attempt_planned"}, {"attempt", ++number}});
    event({{"event", "state_chosen"},
           {"attempt", number},
           {"step", begins_from},
           {"of_attempt", 1},
           {"level", "local"},
           {"moved", 0}});
    at += seconds;
    event({{"event", "attempt_ended"},
           {"attempt", number},
           {"cause", "rank failed"},
           {"status", status},
           {"step", step},
           {"kind", kind}});
  }
  std::vector<int> counts() const {
    return {state.same_step_count, state.no_progress, state.restarts, state.setbacks};
  }
  void SetUp() override { job("17.0"); }

  RunState state;
  double at = 1e9;
  int number = 0, term = 0;
};

TEST_F(Spending, EachKindSpendsItsOwn) {
  for (int i = 0; i < 50; ++i) ends("planned"), ends("node");
  EXPECT_THAT(counts(), ElementsAre(0, 0, 0, 0)) << "neither an order nor the loss of a node is counted";
  for (int i = 0; i < 3; ++i) ends("infrastructure", 20);
  EXPECT_THAT(counts(), ElementsAre(0, 0, 0, 3));
  EXPECT_EQ(state.setback_s, 60);
  ends("planned"), ends("node");
  EXPECT_EQ(state.setback_s, 60);
  ends("program");
  EXPECT_THAT(counts(), ElementsAre(1, 1, 1, 0)) << "the infrastructure had started it";
  EXPECT_EQ(state.setback_s, 0);
  ends("infrastructure");
  ends("program");
  EXPECT_THAT(counts(), ElementsAre(2, 2, 2, 0)) << "a setback in between is no other error";
}

TEST_F(Spending, AnotherErrorAtTheSameStepBeginsAnotherRow) {
  ends("program", 10, 5, 1), ends("program", 10, 5, 1);
  EXPECT_EQ(state.same_step_count, 2);
  ends("program", 10, 5, 139);
  EXPECT_EQ(state.same_step_count, 1);
  ends("program", 10, 6, 139);
  EXPECT_EQ(state.same_step_count, 1);
  ends("program", 10, 6, 139);
  EXPECT_EQ(state.same_step_count, 2);
  EXPECT_EQ(state.no_progress, 1) << "the first one of step 6 had brought a new step";
}

TEST_F(Spending, AnAttemptThatPassesTheStepBeginsAnotherRow) {
  ends("program", 10, 5), ends("program", 10, 5);
  ends("node", 10, 7);
  ends("program", 10, 5);
  EXPECT_EQ(state.same_step_count, 1) << "the program can do step 6";
  ends("node", 10, 5);
  ends("program", 10, 5);
  EXPECT_EQ(state.same_step_count, 2) << "the node's end proves nothing";
}

TEST_F(Spending, ALongAttemptOfAProgramThatDoesNotReportBeginsAnotherRow) {
  ends("program"), ends("program");
  event({{"event", "attempt_planned"}, {"attempt", ++number}});
  event({{"event", "attempt_ended"},
         {"attempt", number},
         {"cause", "node lost"},
         {"step", 0},
         {"kind", "node"},
         {"reports", false},
         {"progress_assumed", true}});
  EXPECT_EQ(state.same_step_count, 0);
  ends("program");
  EXPECT_EQ(state.same_step_count, 1);
}

TEST_F(Spending, AProgramThatHasWorkedMayStartFalsely) {
  const auto ran = [&](double seconds, int status, const char* kind = "program", bool restored = false) {
    event({{"event", "attempt_planned"}, {"attempt", ++number}});
    if (restored)
      event({{"event", "restored"}, {"attempt", number}, {"step", 0}, {"level", "fresh"}, {"digest", ""}});
    at += seconds;
    event({{"event", "attempt_ended"},
           {"attempt", number},
           {"cause", "rank failed"},
           {"status", status},
           {"step", 0},
           {"kind", kind},
           {"reports", restored},
           {"ran_s", seconds},
           {"progress_assumed", seconds >= 10}});
  };
  const config::Supervise limits;
  ran(0.1, 2);
  EXPECT_EQ(state.false_starts, 0) << "it has never worked";
  ran(20, 137);
  EXPECT_TRUE(state.worked);
  const double since = at;
  ran(0.1, 2), ran(1, 2);
  EXPECT_EQ(state.false_starts, 2);
  EXPECT_EQ(state.false_since, since);
  EXPECT_TRUE(may_come_back(state, limits));
  ran(1, 0, "node");
  EXPECT_EQ(state.false_starts, 2) << "that says nothing of the program";
  at = since + 59;
  ran(0.5, 2);
  EXPECT_EQ(used_up(CauseKind::program, state, limits), nullptr);
  ran(0.5, 2);
  EXPECT_NE(used_up(CauseKind::program, state, limits), nullptr) << "a minute is over";
  ran(1, 0);
  EXPECT_EQ(state.false_starts, 0) << "it was silent, and had started";
  ran(1, 2);
  ran(1, 1, "program", true);
  EXPECT_EQ(state.false_starts, 0) << "it had its state";
  ran(1, 2);
  job("17.1");
  EXPECT_EQ(state.false_starts, 0) << "the next job has time of its own";
  ran(1, 2);
  EXPECT_EQ(state.false_starts, 1);
  ran(20, 1);
  EXPECT_EQ(state.false_starts, 0);
  event({{"event", "settings_changed"}, {"settings", {{"slurm.time", {{"before", "1"}, {"now", "2"}}}}}});
  EXPECT_TRUE(state.worked);
  event({{"event", "settings_changed"}, {"settings", {{"rank.command", {{"before", "[]"}, {"now", "[]"}}}}}});
  EXPECT_FALSE(state.worked) << "it is another program";
}

TEST_F(Spending, AStateInMemoryWithWhichTheProgramEndsAgainIsRefused) {
  const auto from = [&](std::int64_t step) { ends("program", 10, 9, 1, step); };
  from(-1), from(-1);
  EXPECT_THAT(state.refused, testing::IsEmpty());
  ends("program", 10, 10, 2);
  from(9);
  EXPECT_THAT(state.refused, testing::IsEmpty()) << "by another error than before";
  from(9);
  EXPECT_THAT(state.refused, ElementsAre(StateName{9, 1}));
  from(8);
  EXPECT_THAT(state.refused, ElementsAre(StateName{9, 1})) << "it has done a step";
}

TEST_F(Spending, TheInfrastructuresTimeEndsWithANewStepAndNotWithAnOldOne) {
  ends("program", 10, 30);
  event({{"event", "attempt_planned"}, {"attempt", ++number}});
  event({{"event", "restored"}, {"attempt", number}, {"step", 10}, {"level", "shared"}, {"digest", "00"}});
  at += 7;
  event({{"event", "first_step"}, {"attempt", number}, {"step", 11}});
  at += 3600;
  event({{"event", "attempt_ended"},
         {"attempt", number},
         {"cause", "no_space"},
         {"step", 20},
         {"kind", "infrastructure"}});
  EXPECT_EQ(state.setbacks, 1) << "step 30 had been done";
  EXPECT_EQ(state.setback_s, 7) << "the hour in which it trained is not the infrastructure's";
  event({{"event", "attempt_planned"}, {"attempt", ++number}});
  event({{"event", "first_step"}, {"attempt", number}, {"step", 31}});
  EXPECT_EQ(state.setbacks, 0);
  ends("infrastructure");
  event({{"event", "checkpoint_durable"}, {"attempt", number}, {"step", 31}});
  EXPECT_EQ(state.setbacks, 0);
  EXPECT_EQ(state.setback_s, 0);
}

TEST_F(Spending, TheNextJobKnowsWhatWasSpent) {
  ends("program", 10, 5);
  ends("program", 10, 5);
  for (int i = 0; i < 4; ++i) ends("infrastructure", 20);
  at += 10000;
  event({{"event", "run_finished"}, {"exit_code", 75}, {"status", "requeued"}, {"why", ""}});
  job("17.1");
  EXPECT_THAT(counts(), ElementsAre(2, 1, 2, 4));
  EXPECT_EQ(state.setback_s, 0) << "other nodes have time of their own, and long waits at once";
  ends("infrastructure", 20);
  EXPECT_EQ(state.setback_s, 20);
  ends("program", 10, 5);
  EXPECT_EQ(state.same_step_count, 3);
  job("17.2");
  EXPECT_THAT(counts(), ElementsAre(3, 2, 3, 0)) << "SLURM ended the job, and nobody has written why";
  event({{"event", "run_finished"}, {"exit_code", 93}, {"status", "failed"}, {"why", ""}});
  job("18.0");
  EXPECT_THAT(counts(), ElementsAre(0, 0, 0, 0)) << "it was stopped, and somebody has submitted it again";
}

// The same in whole runs.

/// Storage that the program needs at its start is gone for hours.
TEST(Budgets, AStartThatStorageFailsForHoursIsNeverTheProgramsFault) {
  FakeCluster c;
  c.on_launch = [&](const Launch& what) {
    for (int n = 0; n < 3; ++n)
      for (int rank = 2 * n; rank < 2 * n + 2; ++rank)
        c.tell(n, [=, attempt = what.attempt](Supervisor& s) {
          s.rank_failed(n, {rank, attempt, 1, "Stale file handle"});
        });
  };
  const double began = c.now;
  int jobs = 0;
  for (; c.now < began + 4 * 3600; ++jobs) {
    ASSERT_TRUE(c.until([&] { return c.exit_code.has_value(); }, 1000));
    ASSERT_EQ(c.exit_code, 75) << c.result().dump(1);
    EXPECT_EQ(c.result()["status"], "requeued");
    c.exit_code.reset();
    c.roster.job = fmt::format("7.{}", jobs + 1);
    c.new_leader(3);
  }
  EXPECT_GT(jobs, 10);
  EXPECT_EQ(c.leader->state().no_progress, 0);
  c.on_launch = [](const Launch&) {};
  ASSERT_TRUE(c.until([&] { return c.leader->state().attempts.back().first_step_at.has_value(); }, 200));
  EXPECT_EQ(c.leader->state().setbacks, 0);
}

/// Evictions, and jobs that SLURM takes away, come as often as they like.
TEST(Budgets, PlannedEndsCostNothing) {
  test::Shape shape{.slots = 3, .spares = 12, .checkpoint_every = 1000000, .local = true};
  shape.limits.max_restarts = shape.limits.max_same_step = shape.limits.max_without_checkpoint = 1;
  FakeCluster c(shape);
  for (int attempt = 1; attempt <= 8; ++attempt) {
    ASSERT_TRUE(c.training(attempt)) << c.result().dump(1);
    const std::string node = c.roster.nodes[c.leader->placement()[1]].name;
    c.tell(0, [node](Supervisor& s) { s.order({"7", control::Order::Verb::evict, node, "mia"}); });
    ASSERT_TRUE(c.until([&] { return c.leader->attempt() == attempt + 1; }, 20));
  }
  for (int requeues = 1; requeues <= 5; ++requeues) {
    c.roster.job = fmt::format("7.{}", requeues);
    c.new_leader(0);
    ASSERT_TRUE(c.until([&] { return c.leader->state().attempts.back().first_step_at.has_value(); }, 20));
  }
  const RunState& state = c.leader->state();
  EXPECT_EQ(state.restarts + state.no_progress + state.same_step_count + state.setbacks, 0);
  EXPECT_FALSE(c.exit_code);
}

}  // namespace
}  // namespace holdfast::launcher

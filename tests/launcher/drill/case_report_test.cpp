// The expected effects of a case, its recovery times, and its report.
#include "launcher/drill/case_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "launcher/drill/report.hpp"
#include "tests/launcher/drill/synthetic_run.hpp"

namespace holdfast::launcher {
namespace {

using test::case_of;
using test::SyntheticRun;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Baseline baseline{20, "d"};
constexpr double never = std::numeric_limits<double>::infinity();

/// A node killed at step 10, noticed after 2 s, training again 2 s after that.
CaseRecord node_killed() {
  SyntheticRun run;
  run.begins(100);
  CaseRecord o;
  o.plan = case_of({"node_killed"});
  o.injected.push_back({{fault_called("node_killed"), false, {"n1"}, -1, 0, 1}, 110, 10, true});
  run.event(112, {{"event", "node_lost"}, {"node", "n1"}});
  run.ends(112.25, 1, "node lost", 10);
  run.attempt(112.5, 2, {"n3", "n2"}, 10);
  run.finishes(130, 2, 20, "d");
  o.last = run.view;
  o.every_step_once = true;
  o.run = "/runs/node_killed-1";
  return o;
}

TEST(CaseReport, TheSameBitsAfterARealRestore) {
  EXPECT_THAT(differences_of(node_killed(), baseline), IsEmpty());
}

TEST(CaseReport, EveryDifferenceIsNamed) {
  CaseRecord o = node_killed();
  EXPECT_THAT(differences_of(o, {20, "e"}), ElementsAre("other bits: d, not e"));
  EXPECT_THAT(differences_of(o, {21, "d"}), ElementsAre("it ended at step 20, not 21"));
  o.every_step_once = false;
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("every step once")));
  o = node_killed();
  o.missed = {"promoted_killed"};
  EXPECT_THAT(differences_of(o, baseline), ElementsAre("promoted_killed was never due"));
  o = node_killed();
  o.errors = {"undoing x: no"};
  EXPECT_THAT(differences_of(o, baseline), ElementsAre("undoing x: no"));
  o = node_killed();
  o.injected[0].at = 120;
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("had no effect")));
  o = node_killed();
  o.plan.max_lost = 0;
  o.last.state.attempts[0].lost_steps = 1;
  EXPECT_THAT(differences_of(o, baseline), ElementsAre("attempt 1 lost 1 steps, more than 0"));
  o = node_killed();
  o.last.state.time.pass(132);
  EXPECT_THAT(differences_of(o, baseline),
              ElementsAre("its time account adds up to 32.0 s, and it took 30.0 s"));
  o = node_killed();
  o.timed_out = true;
  o.last.state.outcome.reset();
  EXPECT_THAT(differences_of(o, baseline), ElementsAre("it was not over after 100 s"));
  o = node_killed();
  o.last.state.outcome->exit_code = 5;
  o.last.state.outcome->status = "out_of_spares";
  EXPECT_THAT(differences_of(o, baseline), ElementsAre("it ended with exit code 5 (out_of_spares), not 0"));
  o.plan.exit_code = 5;
  EXPECT_THAT(differences_of(o, baseline), IsEmpty()) << "the stated stop";
}

TEST(CaseReport, AFreshStartIsNoRecovery) {
  CaseRecord o = node_killed();
  for (auto& event : o.last.events)
    if (auto* restored = std::get_if<events::Restored>(&event.event)) restored->step = 0;
  EXPECT_THAT(differences_of(o, baseline), Contains(HasSubstr("no saved state was restored")));
  o.injected[0].step = 0;
  EXPECT_THAT(differences_of(o, baseline), IsEmpty()) << "there was nothing to restore";
}

TEST(CaseReport, EachFaultOfASoakMustHaveAnEffect) {
  CaseRecord o = node_killed();
  Injected second = o.injected[0];
  second.at = 120;  // after the recovery from the first, and nothing came of it
  o.injected.push_back(second);
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("had no effect")));
  o.injected[1].at = 112.6;  // in the midst of the first one's recovery, which served both
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("had no effect")))
      << "no attempt ended after it";
  o.injected[1].at = 111;
  EXPECT_THAT(differences_of(o, baseline), IsEmpty());
}

TEST(CaseReport, EffectsOfOtherFaults) {
  SyntheticRun run;
  run.begins(100);
  run.finishes(130, 1, 20, "d");
  CaseRecord o;
  o.plan = case_of({"leader_killed"});
  o.every_step_once = true;
  o.last = run.view;
  const auto with = [&](const char* name, const char* event) {
    SyntheticRun other;
    other.begins(100);
    if (event) other.event(112, {{"event", event}, {"node", "n3"}, {"job", "7.0"}});
    other.finishes(130, 1, 20, "d");
    o.last = other.view;
    o.injected = {{{fault_called(name), false, {"n0"}, -1, 0, 1}, 110, 10, true}};
    return differences_of(o, baseline);
  };
  EXPECT_THAT(with("leader_killed", nullptr), ElementsAre(HasSubstr("nobody took over")));
  EXPECT_THAT(with("leader_killed", "leader_elected"), IsEmpty());
  EXPECT_THAT(with("requeued", nullptr), ElementsAre(HasSubstr("no drain")));
  EXPECT_THAT(with("requeued", "drain"), IsEmpty());
  EXPECT_THAT(with("paused", nullptr), ElementsAre(HasSubstr("did not hold")));
  EXPECT_THAT(with("paused", "paused"), IsEmpty());
  EXPECT_THAT(with("agent_killed", nullptr), IsEmpty()) << "nobody need notice";
}

TEST(CaseReport, EventsAfterTheNextInjectionBelongToThatOne) {
  SyntheticRun run;
  run.begins(100);
  run.ends(152, 1, "node lost", 15);
  run.attempt(152.5, 2, {"n3", "n2"}, 15);
  run.event(180, {{"event", "leader_elected"}, {"node", "n3"}, {"job", "7.0"}, {"term", 2}});
  run.finishes(190, 2, 20, "d");
  CaseRecord o;
  o.every_step_once = true;
  o.last = run.view;
  o.plan = case_of({"leader_killed"});
  const auto injected_at = [](const char* name, double at) {
    return Injected{{fault_called(name), false, {"n1"}, -1, 0, 1}, at, 10, true};
  };
  o.injected = {injected_at("rank_killed", 110), injected_at("node_killed", 150)};
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("rank_killed had no effect")));
  o.injected = {injected_at("leader_killed", 110), injected_at("node_killed", 150)};
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("after leader_killed nobody took over")));
  o.injected = {injected_at("leader_killed", 177), injected_at("leader_killed", 179)};
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("after leader_killed nobody took over")));
}

TEST(CaseReport, TheRecordThatAFaultMustLeave) {
  using nlohmann::json;
  struct Row {
    const char* fault;
    json right, differences;
  };
  const std::vector<Row> rows = {
      {"save_without_space",
       {{"event", "checkpoint_dropped"}, {"step", 10}},
       {{"event", "checkpoint_durable"}, {"step", 10}}},
      {"spare_killed", {{"event", "node_lost"}, {"node", "n3"}}, {{"event", "node_lost"}, {"node", "n2"}}},
      {"batch_host_killed",
       {{"event", "leader_elected"}, {"node", "n2"}, {"job", "7.0"}, {"term", 2}},
       {{"event", "straggler"}, {"rank", 1}}},
      {"local_dropped",
       {{"event", "restored"}, {"step", 10}, {"level", "peer"}},
       {{"event", "restored"}, {"step", 10}, {"level", "local"}}},
      {"checkpoint_damaged", {{"event", "restored"}, {"step", 5}}, {{"event", "restored"}, {"step", 10}}},
  };
  for (const auto& row : rows)
    for (const bool right : {true, false}) {
      SyntheticRun run;
      run.begins(100);
      run.event(105, {{"event", "checkpoint_durable"}, {"step", 10}});
      run.event(112, right ? row.right : row.differences);
      run.finishes(130, 1, 20, "d");
      CaseRecord o;
      o.every_step_once = true;
      o.last = run.view;
      o.plan = case_of({row.fault});
      o.injected = {{{fault_called(row.fault), false, {"n3"}, -1, 0, 1}, 110, 10, true}};
      if (right)
        EXPECT_THAT(differences_of(o, baseline), IsEmpty()) << row.fault;
      else
        EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("is not on record"))) << row.fault;
    }
  SyntheticRun run;
  run.begins(100);
  run.event(110.1, {{"event", "drain"}, {"step", 11}, {"stop", false}});
  CaseRecord o;
  o.every_step_once = true;
  o.plan = case_of({"saved"});
  o.injected = {{{fault_called("saved"), false, {}, -1, 0, 1}, 110, 10, true}};
  SyntheticRun saved = run;
  saved.event(110.5, {{"event", "checkpoint_durable"}, {"step", 11}});
  run.finishes(130, 1, 20, "d"), saved.finishes(130, 1, 20, "d");
  o.last = run.view;
  EXPECT_THAT(differences_of(o, baseline), ElementsAre(HasSubstr("is not on record")));
  o.last = saved.view;
  EXPECT_THAT(differences_of(o, baseline), IsEmpty());
  // A flipped bit must be detected on the rank that has it.
  o = node_killed();
  o.injected[0].what.fault = fault_called("gradient_flipped");
  const auto accuse = [&](const char* node) {
    CaseRecord out = o;
    out.last.events.push_back(
        test::entry({{"event", "silent_corruption"}, {"unix", 112.0}, {"nodes", json::array({node})}}));
    return differences_of(out, baseline);
  };
  EXPECT_THAT(accuse("n1"), IsEmpty());
  EXPECT_THAT(accuse("n2"), ElementsAre(HasSubstr("is not on record")));
}

TEST(RecoveryTimes, WhereTheTimeWent) {
  const CaseRecord o = node_killed();
  const RecoveryTimes s = recovery_times(o.injected[0], never, o.last);
  EXPECT_DOUBLE_EQ(*s.detect, 2);
  EXPECT_DOUBLE_EQ(*s.decide, 0.5);
  EXPECT_DOUBLE_EQ(*s.launch, 1);
  EXPECT_DOUBLE_EQ(*s.restore, 0.5);
  EXPECT_DOUBLE_EQ(*s.step, 0.5);
  EXPECT_DOUBLE_EQ(*s.total, 4.5);
  EXPECT_DOUBLE_EQ(*s.total, *s.detect + *s.decide + *s.launch + *s.restore + *s.step);
  Injected early = o.injected[0];
  early.at = 90;
  Injected late = o.injected[0];
  late.at = 120;
  EXPECT_FALSE(recovery_times(late, never, o.last).detect) << "that the run finished is no word of trouble";
  EXPECT_FALSE(recovery_times(early, 100, o.last).total) << "nothing happened before the next fault";
}

TEST(Report, SaysItForPeopleAndPrograms) {
  DrillReport report{"nodes", "2026-11-22T00:00:00.000000Z", 7, {}};
  report.cases.push_back({node_killed(), {}, 42.0});
  report.cases.push_back({node_killed(), {"other bits: d, not e"}, 41.0});
  EXPECT_FALSE(report.passed());
  const auto j = report_json(report);
  EXPECT_EQ(j["schema_version"], 1);
  EXPECT_EQ(j["seed"], 7);
  EXPECT_EQ(j["passed"], false);
  ASSERT_EQ(j["cases"].size(), 2u);
  EXPECT_EQ(j["cases"][0]["state_digest"], "d");
  EXPECT_EQ(j["cases"][0]["restored"], 1);
  EXPECT_EQ(j["cases"][0]["faults"][0]["total_s"], 4.5);
  EXPECT_EQ(j["times"]["node_killed"]["count"], 2);
  EXPECT_EQ(j["times"]["node_killed"]["p99_s"], 4.5);
  const std::string text = report_text(report);
  EXPECT_THAT(text, HasSubstr("1 of 2 cases as expected; 2 faults of 1 types"));
  EXPECT_THAT(text, HasSubstr("| case 1 | node_killed | n1 | 10 | 2.00 | 0.50 | 1.00 | 0.50 | 0.50 | 4.50 | "
                              "2 | the same bits |"));
  EXPECT_THAT(text, HasSubstr("- other bits: d, not e"));
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({3, 1, 2}, 0.99), 3);
  EXPECT_EQ(percentile({5}, 0.5), 5);
}

}  // namespace
}  // namespace holdfast::launcher

// A drill on a fake testbed: what is submitted, injected and compared, in which order.
#include "launcher/drill/runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"
#include "tests/launcher/drill/synthetic_run.hpp"

namespace holdfast::launcher {
namespace {

using test::SyntheticRun;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs of 20 steps, one a second, that react to every fault as to the loss of a node, and recover in 4 s.
class FakeTestbed : public Testbed {
 public:
  double now() override { return now_; }
  void wait(Millis duration) override { now_ += std::chrono::duration<double>(duration).count(); }
  void heal() override {
    log.emplace_back("heal");
    if (cannot_heal) throw Error(Exit::runtime, "a node stays away");
  }
  std::string submit(const std::string& name, const std::vector<std::string>& sets) override {
    std::string line = "submit " + name;
    for (const auto& set : sets) line += " " + set;
    log.push_back(line);
    if (name == refused) throw Error(Exit::runtime, "SLURM does not take it");
    Life& life = lives_[name];
    if (life.began == 0) {
      life.began = now_;
      life.run.begins(now_);
    }
    life.drained = false;
    return name + "#" + std::to_string(++jobs_);
  }
  std::string run_path(const std::string& name) override { return "/fake/" + name; }
  void hold(const std::string& name, double least_step_s, double longest_s) override {
    EXPECT_GT(least_step_s, 0);
    EXPECT_GT(longest_s, least_step_s);
    lives_.at(name).held = true, holds.push_back("hold " + name);
  }
  void release(const std::string& name) override {
    lives_.at(name).held = false, holds.push_back("release " + name);
  }
  RunView view(const std::string& name) override {
    if (blind && now_ > 1040) throw std::runtime_error("not JSON");
    Life& life = lives_.at(name);
    if (!life.drained) life.view_at(now_, digest, run_s);
    life.run.view.now = now_;
    return life.run.view;
  }
  Job job(const std::string& id) override {
    const Life& life = lives_.at(id.substr(0, id.find('#')));
    return life.drained || life.run.view.state.outcome ? Job::gone : Job::running;
  }
  void start_now(const std::string&) override {}
  void cancel(const std::string& id) override { log.push_back("cancel " + id); }
  double inject(const ChosenFault& what, const std::string& name, const std::string&) override {
    if (refuses) throw Error(Exit::runtime, "no injector for it");
    log.push_back((what.undo ? "undo " : "inject ") + std::string(what.fault->name));
    Life& life = lives_.at(name);
    if (what.fault->effect == ExpectedEffect::drain) {
      life.run.event(now_, {{"event", "drain"}, {"stop", true}});
      life.run.event(now_, {{"event", "run_finished"}, {"exit_code", 75}, {"status", "drained"}});
      life.drained = true;
      life.allocation = "8.0";
    } else if (what.fault->effect == ExpectedEffect::attempt && !what.undo) {
      life.run.ends(now_ + 1, 1, "node lost", life.run.view.step);
      life.run.attempt(now_ + 1, 2, {"n3", "n2"}, life.run.view.step);
    }
    return now_;
  }
  bool every_step_once(const std::string&, std::int64_t steps) override { return steps == 20; }
  std::optional<Baseline> known_baseline(const std::vector<std::string>& sets, std::string& name) override {
    if (no_baseline) throw Error(Exit::runtime, "no model");
    name = "baseline";
    for (const auto& set : sets) name += "+" + set;
    if (!kept_.contains(name)) {
      kept_.insert(name);
      return std::nullopt;
    }
    return Baseline{20, "d"};
  }

  std::vector<std::string> log, holds;
  double run_s = 30;  ///< a run nobody holds
  std::string digest = "d";
  bool refuses = false, no_baseline = false, cannot_heal = false, blind = false;
  std::string refused;  ///< the run that cannot be submitted

 private:
  struct Life {
    SyntheticRun run;
    double began = 0;
    bool drained = false, held = false;
    std::string allocation = "7.0";
    void view_at(double now, const std::string& digest, double run_s) {
      if (run.view.state.outcome && run.view.state.outcome->exit_code == 75 && allocation != "7.0")
        run.event(now, {{"event", "leader_elected"}, {"node", "n0"}, {"job", allocation}, {"term", 2}});
      if (run.view.state.outcome) return;
      const auto step = std::min<std::int64_t>(20, static_cast<std::int64_t>(now - began));
      run.at(now, step);
      if (now - began > run_s && !held) run.finishes(now, 1, 20, digest);
    }
  };
  double now_ = 1000;
  int jobs_ = 0;
  std::map<std::string, Life> lives_;
  std::set<std::string> kept_;
};

DrillPlan plan_of(const std::string& text) { return read_drill(config::parse_document(text, "c.toml")); }
DrillReport run(FakeTestbed& testbed, const std::string& text) {
  return run_drill(testbed, plan_of(text), 1, {[](const std::string&) {}, [](const DrillReport&) {}});
}

TEST(Runner, BaselineOnceThenCaseByCase) {
  FakeTestbed testbed;
  const auto report = run(testbed, R"(
[drill]
set = ["a.b=1"]
[[case]]
faults = ["node_frozen for 3 s at step 5"]
repeat = 2
[[case]]
name = "other"
faults = ["agent_killed at step 5"]
set = ["c.d=2"]
)");
  EXPECT_THAT(testbed.log, ElementsAre("heal", "submit baseline+a.b=1 a.b=1", "heal",
                                       "submit node_frozen-1 a.b=1", "inject node_frozen", "undo node_frozen",
                                       "heal", "submit node_frozen-2 a.b=1", "inject node_frozen",
                                       "undo node_frozen", "heal", "submit baseline+a.b=1+c.d=2 a.b=1 c.d=2",
                                       "heal", "submit other-1 a.b=1 c.d=2", "inject agent_killed", "heal"));
  ASSERT_EQ(report.cases.size(), 3u);
  for (const auto& c : report.cases) EXPECT_THAT(c.differences, ElementsAre()) << c.record.plan.name;
  EXPECT_TRUE(report.passed());
  EXPECT_NE(report.cases[0].record.seed, report.cases[1].record.seed);
}

TEST(Runner, ARunThatWasDrainedIsSubmittedAgain) {
  FakeTestbed testbed;
  const auto report = run(testbed, "[[case]]\nfaults = [\"cancelled at step 5\"]\n");
  EXPECT_TRUE(report.passed()) << testing::PrintToString(report.cases[0].differences);
  EXPECT_EQ(report.cases[0].record.submissions, 2);
}

TEST(Runner, ARunLastsUntilTheEffectsAreSeen) {
  FakeTestbed testbed;
  testbed.run_s = 3;  // it is over before its moment comes
  auto report = run(testbed, "[[case]]\nfaults = [\"node_frozen for 3 s at step 5\"]\n");
  EXPECT_TRUE(report.passed()) << testing::PrintToString(report.cases[0].differences);
  EXPECT_THAT(testbed.holds, ElementsAre("hold node_frozen-1", "release node_frozen-1"));
}

TEST(Runner, ARunWhoseFaultCannotBeInjectedIsReleased) {
  FakeTestbed testbed;
  testbed.refuses = true;
  const auto report = run(testbed, "[[case]]\nfaults = [\"node_frozen at step 5\"]\n");
  EXPECT_FALSE(report.cases[0].record.timed_out);
  EXPECT_THAT(testbed.holds, ElementsAre("hold node_frozen-1", "release node_frozen-1"));
}

TEST(Runner, OtherBitsFail) {
  FakeTestbed testbed;
  run(testbed, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  testbed.digest = "e";
  const auto report = run(testbed, "[[case]]\nname = \"again\"\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.cases[0].differences, ElementsAre("other bits: e, not d"));
}

TEST(Runner, AnInjectorThatFailsIsAFailure) {
  FakeTestbed testbed;
  testbed.refuses = true;
  const auto report = run(testbed, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_THAT(report.cases[0].differences, ElementsAre(HasSubstr("no injector for it")));
}

TEST(Runner, ACaseThatCannotBeRunHasFailedAndTheNextOneIsTried) {
  FakeTestbed testbed;
  testbed.refused = "first-1";
  const auto report = run(testbed,
                          "[[case]]\nname = \"first\"\nfaults = [\"agent_killed at step 5\"]\n"
                          "[[case]]\nname = \"second\"\nfaults = [\"agent_killed at step 5\"]\n");
  ASSERT_EQ(report.cases.size(), 2u);
  EXPECT_THAT(report.cases[0].differences, ElementsAre("SLURM does not take it"));
  EXPECT_THAT(report.cases[1].differences, ElementsAre());
}

TEST(Runner, ACaseThatIsAbortedLeavesNoJob) {
  FakeTestbed testbed;
  testbed.blind = true;
  const auto report = run(testbed, "[[case]]\nname = \"first\"\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_THAT(report.cases[0].differences, ElementsAre("not JSON"));
  EXPECT_THAT(testbed.log, testing::Contains("cancel first-1#2"));
}

TEST(Runner, MissingBaselineAndHealingAreReportedNotThrown) {
  FakeTestbed testbed;
  testbed.no_baseline = true;
  auto report = run(testbed, "[[case]]\nfaults = [\"agent_killed at step 5\"]\nrepeat = 3\n");
  ASSERT_EQ(report.cases.size(), 1u);
  EXPECT_THAT(report.cases[0].differences, ElementsAre("no baseline: no model"));
  testbed.no_baseline = false;
  testbed.cannot_heal = true;
  report = run(testbed, "[[case]]\nfaults = [\"stopped at step 5\"]\n");
  EXPECT_THAT(report.cases[0].differences, ElementsAre("a node stays away"));
}

TEST(Runner, ACaseThatDoesNotEndIsCancelled) {
  FakeTestbed testbed;
  run(testbed, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  const auto report =
      run(testbed, "[[case]]\nname = \"long\"\nfaults = [\"agent_killed at step 5\"]\nlimit_s = 20\n");
  EXPECT_THAT(report.cases[0].differences, ElementsAre("it was not over after 20 s"));
  EXPECT_THAT(testbed.log, testing::Contains("cancel long-1#3"));
}

}  // namespace
}  // namespace holdfast::launcher

// A campaign against a field of paper: what is submitted, struck, and judged, in which order.
#include "launcher/drill/runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"
#include "tests/launcher/drill/field.hpp"

namespace holdfast::launcher {
namespace {

using test::HandWritten;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs of 20 steps, one a second, that take every fault as a node's death, and heal in 4 s.
class PaperField : public Field {
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
    if (life.began == 0) life.began = now_, life.run.begins(now_);
    life.drained = false;
    return name + "#" + std::to_string(++jobs_);
  }
  std::string place_of(const std::string& name) override { return "/paper/" + name; }
  void hold(const std::string& name, double least_step_s, double longest_s) override {
    EXPECT_GT(least_step_s, 0);
    EXPECT_GT(longest_s, least_step_s);
    lives_.at(name).held = true, holds.push_back("hold " + name);
  }
  void let_go(const std::string& name) override {
    lives_.at(name).held = false, holds.push_back("let go " + name);
  }
  View look(const std::string& name) override {
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
  void hurry(const std::string&) override {}
  void cancel(const std::string& id) override { log.push_back("cancel " + id); }
  double strike(const Strike& what, const std::string& name, const std::string&) override {
    if (refuses) throw Error(Exit::runtime, "no hand for it");
    log.push_back((what.undo ? "undo " : "strike ") + std::string(what.fault->name));
    Life& life = lives_.at(name);
    if (what.fault->mark == Mark::drain) {
      life.run.event(now_, {{"event", "drain"}, {"stop", true}});
      life.run.event(now_, {{"event", "run_finished"}, {"exit_code", 75}, {"status", "drained"}});
      life.drained = true;
      life.allocation = "8.0";
    } else if (what.fault->mark == Mark::attempt && !what.undo) {
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
    HandWritten run;
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

CampaignPlan plan_of(const std::string& text) {
  return read_campaign(config::parse_document(text, "c.toml"));
}
CampaignReport run(PaperField& field, const std::string& text) {
  return run_campaign(field, plan_of(text), 1, {[](const std::string&) {}, [](const CampaignReport&) {}});
}

TEST(Runner, BaselineOnceThenCaseByCase) {
  PaperField field;
  const auto report = run(field, R"(
[campaign]
set = ["a.b=1"]
[[case]]
faults = ["node_frozen for 3 s at step 5"]
repeat = 2
[[case]]
name = "other"
faults = ["agent_killed at step 5"]
set = ["c.d=2"]
)");
  EXPECT_THAT(field.log, ElementsAre("heal", "submit baseline+a.b=1 a.b=1", "heal",
                                     "submit node_frozen-1 a.b=1", "strike node_frozen", "undo node_frozen",
                                     "heal", "submit node_frozen-2 a.b=1", "strike node_frozen",
                                     "undo node_frozen", "heal", "submit baseline+a.b=1+c.d=2 a.b=1 c.d=2",
                                     "heal", "submit other-1 a.b=1 c.d=2", "strike agent_killed", "heal"));
  ASSERT_EQ(report.cases.size(), 3u);
  for (const auto& c : report.cases) EXPECT_THAT(c.wrong, ElementsAre()) << c.outcome.plan.name;
  EXPECT_TRUE(report.passed());
  EXPECT_NE(report.cases[0].outcome.seed, report.cases[1].outcome.seed);
}

TEST(Runner, ARunThatWasDrainedIsSubmittedAgain) {
  PaperField field;
  const auto report = run(field, "[[case]]\nfaults = [\"cancelled at step 5\"]\n");
  EXPECT_TRUE(report.passed()) << testing::PrintToString(report.cases[0].wrong);
  EXPECT_EQ(report.cases[0].outcome.submissions, 2);
}

TEST(Runner, ARunLastsUntilItsFaultsAreFelt) {
  PaperField field;
  field.run_s = 3;  // it is over before its moment comes
  auto report = run(field, "[[case]]\nfaults = [\"node_frozen for 3 s at step 5\"]\n");
  EXPECT_TRUE(report.passed()) << testing::PrintToString(report.cases[0].wrong);
  EXPECT_THAT(field.holds, ElementsAre("hold node_frozen-1", "let go node_frozen-1"));
}

TEST(Runner, ARunWhoseFaultCannotBeDealtIsLetGo) {
  PaperField field;
  field.refuses = true;
  const auto report = run(field, "[[case]]\nfaults = [\"node_frozen at step 5\"]\n");
  EXPECT_FALSE(report.cases[0].outcome.timed_out);
  EXPECT_THAT(field.holds, ElementsAre("hold node_frozen-1", "let go node_frozen-1"));
}

TEST(Runner, OtherBitsFail) {
  PaperField field;
  run(field, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  field.digest = "e";
  const auto report = run(field, "[[case]]\nname = \"again\"\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("other bits: e, not d"));
}

TEST(Runner, AHandThatFailsIsAFailure) {
  PaperField field;
  field.refuses = true;
  const auto report = run(field, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_THAT(report.cases[0].wrong, ElementsAre(HasSubstr("no hand for it")));
}

TEST(Runner, ACaseThatCannotBeRunHasFailedAndTheNextOneIsTried) {
  PaperField field;
  field.refused = "first-1";
  const auto report = run(field,
                          "[[case]]\nname = \"first\"\nfaults = [\"agent_killed at step 5\"]\n"
                          "[[case]]\nname = \"second\"\nfaults = [\"agent_killed at step 5\"]\n");
  ASSERT_EQ(report.cases.size(), 2u);
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("SLURM does not take it"));
  EXPECT_THAT(report.cases[1].wrong, ElementsAre());
}

TEST(Runner, ACaseThatIsBrokenOffLeavesNoJob) {
  PaperField field;
  field.blind = true;
  const auto report = run(field, "[[case]]\nname = \"first\"\nfaults = [\"agent_killed at step 5\"]\n");
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("not JSON"));
  EXPECT_THAT(field.log, testing::Contains("cancel first-1#2"));
}

TEST(Runner, NoBaselineAndNoHealingAreSaidNotThrown) {
  PaperField field;
  field.no_baseline = true;
  auto report = run(field, "[[case]]\nfaults = [\"agent_killed at step 5\"]\nrepeat = 3\n");
  ASSERT_EQ(report.cases.size(), 1u);
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("no baseline: no model"));
  field.no_baseline = false, field.cannot_heal = true;
  report = run(field, "[[case]]\nfaults = [\"gradient_nan at step 5\"]\n");
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("a node stays away"));
}

TEST(Runner, ACaseThatDoesNotEndIsCancelled) {
  PaperField field;
  run(field, "[[case]]\nfaults = [\"agent_killed at step 5\"]\n");
  const auto report =
      run(field, "[[case]]\nname = \"long\"\nfaults = [\"agent_killed at step 5\"]\nlimit_s = 20\n");
  EXPECT_THAT(report.cases[0].wrong, ElementsAre("it was not over after 20 s"));
  EXPECT_THAT(field.log, testing::Contains("cancel long-1#3"));
}

}  // namespace
}  // namespace holdfast::launcher

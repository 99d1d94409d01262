#include "launcher/job/progress_teller.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "tests/config/scratch.hpp"
#include "tests/control/by_hand.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using control::test::HandLoop;
using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr slurm::JobId told_job = 7;

class CommentedCluster final : public slurm::FakeCluster {
 public:
  explicit CommentedCluster(const control::Loop& loop) : FakeCluster("n[1-2]"), loop_(loop) {}
  std::string comment(slurm::JobId id, std::chrono::milliseconds limit) override {
    asked_at.push_back(loop_.steady_seconds());
    return FakeCluster::comment(id, limit);
  }
  void set_comment(slurm::JobId id, const std::string& text, std::chrono::milliseconds limit) override {
    FakeCluster::set_comment(id, text, limit);
    written_at.push_back(loop_.steady_seconds());
  }
  json written() { return json::parse(comments.at(told_job)); }
  std::vector<double> asked_at, written_at;

 private:
  const control::Loop& loop_;
};

class ProgressTellerTest : public testing::Test {
 protected:
  ProgressTellerTest() {
    log::start_for([this](std::string_view line) { lines.emplace_back(line); });
    write(events::LeaderElected{"n1", "7.0", 1, {}, 2});
  }
  ~ProgressTellerTest() override { log::start(""); }

  void begin(int comment_s = 300) {
    ProgressTeller::Setup setup{run, told_job, "7.0", {}, comment_s};
    setup.facts.name = "made up";
    setup.facts.steps = 1000;
    teller.emplace(loop, cluster, std::move(setup));
  }
  void write(Event event) { journal.write(std::move(event)); }
  void attempt_begins(int number) {
    write(events::AttemptPlanned{number, {"n1"}, "", "", 0});
    write(events::AttemptStarted{number});
    write(events::PlacementVerified{number, 1});
    write(events::Restored{number, 0, "fresh", "ab", ""});
    write(events::FirstStep{number, 1});
  }
  void step(int number) {
    metrics += json{{"step", number}, {"attempt", 1}, {"loss", 2.5}}.dump() + "\n";
    scratch.write("metrics.jsonl", metrics);
  }
  /// A step each ten seconds.
  void train(int seconds) {
    for (int passed = 0; passed < seconds; passed += 10) {
      step(++steps);
      loop.pass(10);
    }
  }

  static RunDir run_in(const std::filesystem::path& folder) {
    RunDir run{folder};
    files::fs::create_directories(run.events());
    return run;
  }
  holdfast::test::Scratch scratch;
  RunDir run = run_in(scratch.path());
  Journal journal{run, 1};
  HandLoop loop;
  CommentedCluster cluster{loop};
  std::vector<std::string> lines;
  std::string metrics;
  int steps = 0;
  std::optional<ProgressTeller> teller;
};

TEST_F(ProgressTellerTest, TellsInTheLogWhatIsNew) {
  begin();
  loop.pass(10);
  EXPECT_THAT(lines, IsEmpty()) << "what was on record before is not told";
  write(events::NodeLost{"n2", 1, 2.0, "no heartbeat for 2.0 s"});
  step(3);
  loop.pass(20);
  EXPECT_THAT(lines, ElementsAre("n2 was lost: no heartbeat for 2.0 s", "step 3 of 1000, loss 2.5000"));
}

TEST_F(ProgressTellerTest, TheCommentHasTheRunsStateAndIsRenewedAtItsPace) {
  begin();
  attempt_begins(1);
  train(1200);
  EXPECT_EQ(cluster.written()["run"], "made up");
  EXPECT_EQ(cluster.written()["of"], 1000);
  EXPECT_GT(cluster.written()["step"], 80);
  EXPECT_THAT(cluster.written_at, SizeIs(testing::AllOf(testing::Ge(3U), testing::Le(5U))));
  for (std::size_t i = 1; i < cluster.written_at.size(); ++i)
    EXPECT_GE(cluster.written_at[i] - cluster.written_at[i - 1], 300);
  const auto before = cluster.written_at.size();
  loop.pass(900);
  EXPECT_LE(cluster.written_at.size(), before + 1) << "nothing is new but the last step";
}

TEST_F(ProgressTellerTest, NoCommentIsWantedMoreOftenThanOnceAMinute) {
  begin(1);
  train(600);
  EXPECT_THAT(cluster.written_at, SizeIs(testing::AllOf(testing::Ge(9U), testing::Le(11U))));
}

TEST_F(ProgressTellerTest, WithoutAnIntervalTheCommentIsLeftAlone) {
  begin(0);
  train(600);
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_THAT(cluster.asked_at, IsEmpty());
  EXPECT_THAT(cluster.comments, IsEmpty());
}

TEST_F(ProgressTellerTest, TheEndOfAnAttemptIsToldSoon) {
  begin();
  attempt_begins(1);
  train(60);
  ASSERT_THAT(cluster.written_at, SizeIs(1));
  const auto state = cluster.written()["state"];
  write(events::AttemptEnded{.attempt = 1, .step = 6, .cause = "node lost", .node = "n2", .kind = "node"});
  loop.pass(2);
  ASSERT_THAT(cluster.written_at, SizeIs(2));
  EXPECT_NE(cluster.written()["state"], state);
  attempt_begins(2);
  step(++steps);
  write(events::AttemptEnded{.attempt = 2, .step = 6, .cause = "node lost", .node = "n1", .kind = "node"});
  loop.pass(6);
  EXPECT_THAT(cluster.written_at, SizeIs(2)) << "not before ten seconds";
  loop.pass(10);
  EXPECT_GE(cluster.written_at.at(2) - cluster.written_at.at(1), 10);
}

TEST_F(ProgressTellerTest, ACommentOfSomebodyElseStays) {
  cluster.comments[told_job] = "for the paper";
  begin();
  train(900);
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_EQ(cluster.comments[told_job], "for the paper");
  EXPECT_THAT(cluster.asked_at, SizeIs(1)) << "nor is it asked for again";
  EXPECT_EQ(std::ranges::count(lines, "job 7 has a comment of somebody else, which stays"), 1);
}

TEST_F(ProgressTellerTest, ACommentThatIsWrittenInPlaceOfOursStays) {
  begin();
  train(60);
  ASSERT_THAT(cluster.written_at, SizeIs(1));
  cluster.comments[told_job] = "mine now";
  train(900);
  EXPECT_THAT(cluster.written_at, SizeIs(1));
  cluster.comments[told_job] = "and later";
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_EQ(cluster.comments[told_job], "and later");
}

TEST_F(ProgressTellerTest, ACommentWrittenJustBeforeTheEndStays) {
  begin();
  train(60);
  cluster.comments[told_job] = "for the paper";
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_EQ(cluster.comments[told_job], "for the paper");
}

TEST_F(ProgressTellerTest, SlurmThatDoesNotTakeACommentIsAskedAgainLater) {
  cluster.controller(false);
  begin();
  train(900);
  EXPECT_THAT(cluster.asked_at, SizeIs(testing::AllOf(testing::Ge(2U), testing::Le(4U))));
  EXPECT_THAT(cluster.written_at, IsEmpty());
  EXPECT_THAT(lines, Contains(HasSubstr("SLURM has not taken a comment: ")));
  cluster.controller(true);
  train(300);
  EXPECT_GT(cluster.written()["step"], 90) << "what is true now";
}

TEST_F(ProgressTellerTest, SlurmThatDoesNotAnswerHoldsUpNothing) {
  loop.held = {1};
  begin();
  train(900);
  EXPECT_THAT(lines, Contains(HasSubstr("step 3"))) << "the log goes on";
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_THAT(cluster.asked_at, IsEmpty()) << "the first question is still open";
  EXPECT_THAT(lines, Contains(HasSubstr("summary of made up: ")));
}

TEST_F(ProgressTellerTest, StorageThatDoesNotAnswerHoldsUpNothing) {
  begin();
  loop.held = {0};
  train(600);
  EXPECT_THAT(lines, IsEmpty());
  EXPECT_THAT(cluster.asked_at, IsEmpty());
}

TEST_F(ProgressTellerTest, TheLastWordsAreTheOutcome) {
  begin();
  attempt_begins(1);
  train(60);
  step(1000);
  write(events::AttemptEnded{.attempt = 1, .step = 1000, .cause = "finished"});
  write(events::FinalState{1000, 5000, 2.5, "00000000000000ab"});
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_EQ(cluster.written()["state"], "done");
  EXPECT_EQ(cluster.written()["step"], 1000);
  EXPECT_THAT(lines, Contains("summary of made up: done"));
  EXPECT_THAT(lines, Contains("  state digest 00000000000000ab"));
  const auto before = lines.size();
  loop.pass(600);
  EXPECT_EQ(lines.size(), before) << "nothing follows them";
}

TEST_F(ProgressTellerTest, TheLastCommentIsLeftOutWhereSlurmIsAway) {
  begin();
  train(60);
  cluster.controller(false);
  write(events::RunFinished{0, "done", "", {}});
  teller->finish();
  EXPECT_THAT(lines, Contains("summary of made up: done"));
  EXPECT_EQ(cluster.written_at.size(), 1U);
}

TEST_F(ProgressTellerTest, WithoutAnOutcomeOfThisAllocationThereIsNoSummary) {
  begin();
  train(60);
  const auto written = cluster.written_at.size();
  teller->finish();
  EXPECT_THAT(lines, testing::Not(Contains(HasSubstr("summary"))));
  write(events::RunFinished{0, "done", "", {}});
  teller.emplace(loop, cluster, ProgressTeller::Setup{run, told_job, "7.1", {}, 300});
  teller->finish();
  EXPECT_THAT(lines, testing::Not(Contains(HasSubstr("summary")))) << "it is of the allocation before";
  EXPECT_EQ(cluster.written_at.size(), written);
}

}  // namespace
}  // namespace holdfast::launcher

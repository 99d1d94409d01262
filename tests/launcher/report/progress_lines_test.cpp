#include "launcher/report/progress_lines.hpp"

#include <gmock/gmock.h>

namespace holdfast::launcher::report {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

LogEntry entry(int term, int seq, Event event) {
  LogEntry out{{}, std::move(event)};
  out.envelope.term = term;
  out.envelope.seq = seq;
  out.envelope.unix = 1.7e9 + 100 * term + seq;
  return out;
}

json line_of_step(std::int64_t step, int attempt = 1) {
  return {{"step", step}, {"attempt", attempt}, {"loss", 2.5}, {"tokens_per_s", 1000.0}, {"step_s", 0.5}};
}

TEST(ProgressLines, EachEventIsToldOnceAndWhatWasThereIsNot) {
  std::vector<LogEntry> events = {entry(1, 1, events::LeaderElected{"n1", "7.0", 1, {}, 2})};
  ProgressLines lines(events, std::nullopt);
  EXPECT_THAT(lines.more(events, std::nullopt, 100, 1), IsEmpty());
  events.push_back(entry(1, 2, events::NodeLost{"n2", 1, 2.0, "no heartbeat\n\x1b[2J for 2.0 s"}));
  events.push_back(entry(1, 3, events::CheckpointDurable{1, 40, ""}));
  events.push_back(entry(2, 1, events::CheckpointDurable{1, 50, "two tries"}));
  EXPECT_THAT(lines.more(events, std::nullopt, 100, 2),
              ElementsAre("n2 was lost: no heartbeat \xEF\xBF\xBD[2J for 2.0 s",
                          "the checkpoint of step 50 is durable: two tries"));
  EXPECT_THAT(lines.more(events, std::nullopt, 100, 3), IsEmpty());
  events.erase(events.begin() + 1);  // it was void
  EXPECT_THAT(lines.more(events, std::nullopt, 100, 4), IsEmpty());
}

TEST(ProgressLines, AStepThatNobodyKnowsIsNotZero) {
  ProgressLines lines({}, std::nullopt);
  EXPECT_THAT(
      lines.more({entry(1, 1, events::AttemptEnded{.attempt = 1, .cause = "node lost", .reports = false})},
                 std::nullopt, 0, 1),
      ElementsAre("attempt 1 ended at an unknown step: node lost"));
}

TEST(ProgressLines, StepsAreToldEverMoreSeldom) {
  ProgressLines lines({}, line_of_step(5));
  EXPECT_THAT(lines.more({}, line_of_step(5), 100, 50), IsEmpty()) << "of the job before";
  int told = 0;
  for (int second = 51; second <= 86400; ++second) {
    const auto come = lines.more({}, line_of_step(second), 0, second);
    told += static_cast<int>(come.size());
    if (second == 51) {
      EXPECT_THAT(come, ElementsAre("step 51, loss 2.5000, 1000 tokens/s, 0.5 s a step"));
    }
  }
  EXPECT_GT(told, 100);
  EXPECT_LT(told, 300) << "of a day";
  EXPECT_THAT(lines.more({}, line_of_step(3, 2), 10, 90000), ElementsAre(HasSubstr("step 3 of 10, ")));
}

TEST(ProgressLines, TheSummaryTellsWhatWasDone) {
  StatusFacts facts;
  facts.name = "big\nrun";
  facts.steps = 100;
  facts.last_step = line_of_step(100);
  for (const auto& event : {entry(1, 1, events::LeaderElected{"n1", "7.0", 1, {}, 2}),
                            entry(1, 2, events::AttemptPlanned{1, {"n1"}, "", "", 0}),
                            entry(1, 3, events::CheckpointDurable{1, 100, ""}),
                            entry(1, 4, events::FinalState{100, 5000, 2.5, "00000000000000ab"}),
                            entry(1, 5, events::RunFinished{0, "done", "", {}})})
    apply(facts.state, event);
  const auto lines = summary_lines(facts);
  ASSERT_THAT(lines, SizeIs(testing::Ge(5u)));
  EXPECT_EQ(lines[0], "summary of big run: done");
  EXPECT_THAT(lines, testing::Contains("  last step 100 of 100, loss 2.5000, 1000 tokens/s, 0.5 s a step"));
  EXPECT_THAT(lines, testing::Contains("  newest durable checkpoint: step 100"));
  EXPECT_THAT(lines, testing::Contains("  state digest 00000000000000ab"));
  facts.state.final_state->state_digest.clear();
  EXPECT_THAT(summary_lines(facts), testing::Not(testing::Contains(HasSubstr("digest"))))
      << "another program may have told none";
}

TEST(JobComment, IsShortAndKnownAgain) {
  StatusFacts facts;
  facts.name = "caf\xC3\xA9 \"run\"";
  facts.steps = 100;
  EXPECT_EQ(job_comment(facts), R"({"holdfast":1,"run":"caf\u00e9 \"run\"","state":"waiting for nodes"})");
  facts.last_step = line_of_step(7);
  facts.last_step->at("loss") = 2.3456789;
  EXPECT_EQ(json::parse(job_comment(facts)),
            json::parse(R"({"holdfast":1,"run":"café \"run\"","step":7,"of":100,"loss":2.346,
                            "state":"trained without agents"})"));
  facts.last_step->at("loss") = nullptr;
  EXPECT_FALSE(json::parse(job_comment(facts)).contains("loss"));
  EXPECT_TRUE(may_replace_comment(""));
  EXPECT_TRUE(may_replace_comment(job_comment(facts)));
  for (const char* other : {"for the paper", "{\"run\":1}", "1", "[\"holdfast\"]", "holdfast"})
    EXPECT_FALSE(may_replace_comment(other)) << other;
}

/// SLURM shows it to every user, also of a run whose directory is closed.
TEST(JobComment, HasNothingThatTheProgramHasWritten) {
  const std::string secret = "token=hf_s3cr3t";
  StatusFacts facts;
  facts.name = "closed";
  AttemptRecord attempt;
  attempt.number = 1;
  attempt.cause = "rank failed";
  attempt.ended_at = 100;
  attempt.evidence = {secret};
  attempt.advice = secret;
  facts.state.attempts = {attempt};
  facts.state.outcome = RunOutcome{93, "failed", "3 attempts; last: " + secret};
  EXPECT_EQ(
      job_comment(facts),
      R"json({"holdfast":1,"run":"closed","state":"failed (exit 93)","cause":"rank failed","exit_code":93})json");
  facts.state.outcome.reset();
  EXPECT_EQ(job_comment(facts),
            R"({"holdfast":1,"run":"closed","state":"between attempts","cause":"rank failed"})");
  facts.state.attempts.back().ended_at.reset();
  facts.state.attempts.back().waits_for = secret;
  EXPECT_THAT(job_comment(facts), testing::Not(testing::HasSubstr(secret)));
  facts.state.drain = RunState::Draining{{true, secret}, 0, 0, true};
  EXPECT_THAT(job_comment(facts), testing::Not(testing::HasSubstr(secret)));
}

}  // namespace
}  // namespace holdfast::launcher::report

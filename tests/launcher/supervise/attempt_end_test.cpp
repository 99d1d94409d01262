#include "launcher/supervise/attempt_end.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/supervise/run_with_attempt.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

using EndKind = Failure::Kind;

Failure failed(EndKind kind, int node = 1) {
  Failure failure;
  failure.kind = kind;
  failure.node = node;
  failure.evidence = "the evidence";
  failure.silent_s = 2;
  return failure;
}

class AttemptEnd : public testing::Test, protected test::RunWithAttempt {
 protected:
  events::AttemptEnded end(const Failure& failure, bool begun = true, double at = 1010) const {
    EndFacts facts{state, roster, 17, at};
    facts.begun = begun;
    return end_by(failure, facts);
  }
  std::vector<Event> after(const Failure& failure) const { return nodes_after(failure, state, roster, 2); }
};

TEST_F(AttemptEnd, EachKindOfEndCountsForItsLimits) {
  const auto counts = [](const events::AttemptEnded& e) {
    return std::string(e.counts ? "progress " : "") + (e.restart ? "restart " : "") +
           (e.setback ? "setback " : "") + (e.untried ? "untried" : "");
  };
  EXPECT_EQ(counts(end(failed(EndKind::rank_exited))), "progress restart ");
  EXPECT_EQ(counts(end(failed(EndKind::rank_hung))), "progress restart ");
  EXPECT_EQ(counts(end(failed(EndKind::node_lost))), "progress restart ");
  EXPECT_EQ(counts(end(failed(EndKind::node_lost), false)), "untried");
  EXPECT_EQ(counts(end(failed(EndKind::rank_exited), false)), "progress restart ");
  EXPECT_EQ(counts(end(failed(EndKind::start_failed))), "restart setback ");
  EXPECT_EQ(counts(end(failed(EndKind::start_failed), true, 1600)), "progress restart ")
      << "it has lived long";
  state.attempts.back().first_step_at = 1005;
  EXPECT_EQ(counts(end(failed(EndKind::start_failed))), "progress restart ");
  EXPECT_EQ(counts(end(failed(EndKind::leader_changed))), "restart ");
  EXPECT_EQ(counts(end(failed(EndKind::evicted))), "");
  EXPECT_EQ(counts(end_with_run("drained", 1, 17)), "");
}

TEST_F(AttemptEnd, TheEndTellsWhenItWasNoticedAndWhy) {
  EndFacts facts{state, roster, 17, 1010};
  facts.signs = {"a", "b", "c", "d", "e"};
  Failure failure = failed(EndKind::rank_hung);
  failure.seen = {"#0 wait"};
  auto ended = end_by(failure, facts);
  EXPECT_EQ(ended.detected_s, 2);
  EXPECT_EQ(ended.node, "n1");
  EXPECT_EQ(ended.cause, "rank hung");
  EXPECT_THAT(ended.evidence, ElementsAre("the evidence", "#0 wait", "a", "b", "c", "d"));
  facts.reported_s = 0.3;
  EXPECT_EQ(end_by(failure, facts).detected_s, 0.3);
  state.attempts.back().launched_s = 2;
  assume_progress(ended, state.attempts.back(), 1010, 9);
  EXPECT_FALSE(ended.reports);
  EXPECT_EQ(ended.ran_s, 8);
  EXPECT_FALSE(ended.progress_assumed);
  assume_progress(ended, state.attempts.back(), 1012, 9);
  EXPECT_TRUE(ended.progress_assumed);
}

TEST_F(AttemptEnd, WhoIsToBlameIsASuspectAndWhoseHardwareFailedIsOut) {
  EXPECT_THAT(after(failed(EndKind::rank_exited)), SizeIs(0));
  EXPECT_THAT(test::kinds_of(after(failed(EndKind::start_failed))), ElementsAre("node_suspected"));
  Failure broken = failed(EndKind::rank_exited);
  broken.blame = Blame::node;
  EXPECT_THAT(test::kinds_of(after(broken)), ElementsAre("node_suspected"));
  broken.ends_node = true;
  broken.ended_nodes = {1, 2};
  EXPECT_THAT(test::kinds_of(after(broken)), ElementsAre("node_evicted", "node_evicted")) << "each once";
  state.failures["n1"] = 2;
  EXPECT_THAT(test::kinds_of(after(failed(EndKind::rank_exited))), ElementsAre("node_suspected"))
      << "for the second time";
  state.suspects = {"n1"};
  EXPECT_THAT(after(failed(EndKind::rank_exited)), SizeIs(0));
  state.suspects.clear();
  state.lost = {"n1"};
  EXPECT_THAT(after(failed(EndKind::node_lost)), SizeIs(0));
}

TEST_F(AttemptEnd, NodesThatWereToLeaveAreOut) {
  state.evicting = {{"n2", "an order"}};
  EXPECT_THAT(test::kinds_of(after(failed(EndKind::evicted, 2))), ElementsAre("node_evicted"));
}

}  // namespace
}  // namespace holdfast::launcher

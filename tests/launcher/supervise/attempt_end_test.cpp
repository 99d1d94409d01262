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
  events::AttemptEnded end(const Failure& failure) const { return end_by(failure, {state, roster, 17}); }
  std::vector<Event> after(const Failure& failure) const { return nodes_after(failure, state, roster, {}); }
};

TEST_F(AttemptEnd, TheEndHasItsKindOfCause) {
  Failure crashed = failed(EndKind::rank_exited);
  crashed.status = 139;
  EXPECT_EQ(end(crashed).kind, "program");
  EXPECT_EQ(end(crashed).status, 139);
  EXPECT_EQ(end(failed(EndKind::node_lost)).kind, "node");
  EXPECT_THAT(end(failed(EndKind::node_lost)).advice, testing::StartsWith("find out why the node is gone"));
  EXPECT_EQ(end(failed(EndKind::rank_hung)).advice, "");
  EXPECT_EQ(end(failed(EndKind::start_failed)).kind, "infrastructure");
  EXPECT_EQ(end(failed(EndKind::evicted)).kind, "planned");
  EXPECT_EQ(end_with_run("drained", 1, 17).kind, "planned");
}

TEST_F(AttemptEnd, TheEndTellsWhenItWasNoticedAndWhy) {
  EndFacts facts{state, roster, 17};
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

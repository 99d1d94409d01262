#include "launcher/supervise/failure_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

control::NodeSigns xid(std::int64_t age_ms) {
  return {{{"xid", -1, 79, age_ms, "GPU 0 has fallen off the bus"}}};
}
Failure rank_failure(int node, int rank) {
  Failure failure;
  failure.node = node;
  failure.rank = rank;
  return failure;
}

TEST(FailureWatch, TheFirstFailureWaitsAndTheFirstEndOfARankCounts) {
  FailureWatch watch({"n0", "n1"});
  EXPECT_FALSE(watch.pending());
  watch.take_end({3, 1, 1, "its own words", 10});
  watch.take_end({3, 1, 137, "", 11});
  watch.suspect(rank_failure(1, 3), 10);
  watch.suspect(rank_failure(0, 0), 12);
  EXPECT_TRUE(watch.pending());
  EXPECT_EQ(watch.pending_since(), 10);
  const Failure failure = watch.diagnosed({0, 1});
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.status, 1);
  EXPECT_FALSE(failure.evidence.empty());
  watch.extend_deadlines(30, 35);
  EXPECT_EQ(watch.pending_since(), 35) << "not in the future";
  watch.decided();
  EXPECT_FALSE(watch.pending());
  EXPECT_TRUE(watch.any_end());
  watch.new_attempt();
  EXPECT_FALSE(watch.any_end());
}

TEST(FailureWatch, SignsOfSparesExplainNothing) {
  for (const bool placed : {true, false}) {
    FailureWatch watch({"n0", "n1"});
    watch.take_signs(1, xid(0), 9);
    watch.take_end({0, 0, 1, "", 10});
    watch.suspect(rank_failure(0, 0), 10);
    const Failure failure = watch.diagnosed(placed ? std::vector{0, 1} : std::vector{0});
    EXPECT_EQ(failure.node, placed ? 1 : 0);
    EXPECT_EQ(failure.ends_node, placed);
  }
}

TEST(FailureWatch, AFailureThatIsNoEndOfARankNeedsNoDiagnosis) {
  FailureWatch watch({"n0", "n1"});
  watch.take_signs(1, xid(0), 9);
  Failure misplaced = rank_failure(0, 0);
  misplaced.kind = Failure::Kind::misplaced;
  watch.suspect(misplaced, 10);
  EXPECT_EQ(watch.diagnosed({0, 1}).node, 0);
}

TEST(FailureWatch, NewSignsOfBrokenHardwareEndANodeBeforeItsRanksEnd) {
  FailureWatch watch({"n0", "n1"});
  EXPECT_TRUE(watch.take_signs(1, xid(60000), 100));
  EXPECT_FALSE(watch.take_signs(1, xid(60001), 100)) << "an agent repeats what is old";
  ASSERT_TRUE(watch.ends_node(1));
  EXPECT_THAT(watch.ends_node(1)->why, HasSubstr("n1"));
  EXPECT_EQ(watch.ends_node(1)->sign, "Xid 79");
  EXPECT_FALSE(watch.ends_node(0));
  watch.take_signs(0, {{{"link_down", -1, 0, 0, "mlx5_0"}}}, 100);
  EXPECT_FALSE(watch.ends_node(0)) << "a link may come back";
}

TEST(FailureWatch, TheLastSignsAreToldAndOldOnesForgotten) {
  FailureWatch watch({"n0", "n1"});
  for (int i = 0; i < 7; ++i) watch.take_signs(1, {{{"xid", -1, 79, 0, std::to_string(i)}}}, 100 + i);
  watch.take_signs(0, xid(0), 110);
  EXPECT_EQ(watch.last_signs(1, 0, 106).size(), 5u);
  EXPECT_EQ(watch.last_signs(1, 0, 108).front(), "2.0 s before: xid 6");
  EXPECT_THAT(watch.last_signs(1, 0, 705), ElementsAre("599.0 s before: xid 6", "600.0 s before: xid 5"));
}

TEST(FailureWatch, AnNvlinkThatFailsForTheThirdTimeInTheJobEndsItsNode) {
  FailureWatch watch({"n0", "n1"});
  const control::NodeSigns parity{
      {{"xid", -1, 74, 0,
        "NVRM: Xid (PCI:0000:9b:00): 74, NVLink: fatal error detected on link 3(0x10, 0x0, 0x0, "
        "0x0, 0x0, 0x0, 0x0)"}}};
  for (const double at : {100.0, 10000.0}) {
    watch.take_signs(1, parity, at);
    EXPECT_FALSE(watch.ends_node(1));
  }
  watch.take_signs(1, parity, 90000);
  EXPECT_TRUE(watch.ends_node(1)) << "hours lie in between";
}

control::NodeSigns sign_of(const char* kind, int rank, const char* text, int attempt) {
  return {{{kind, rank, 1, 0, text, attempt}}};
}

TEST(FailureWatch, EachAttemptHasItsOwnLastLineAndCause) {
  FailureWatch watch({"n0"});
  const std::vector<std::pair<const char*, const char*>> ends = {
      {"RuntimeError: first error, of attempt 1", "rank failed"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu_memory_full"},
      {"OSError: [Errno 28] No space left on device: '/shared/ckpt'", "no_space"},
      {"OSError: [Errno 116] Stale file handle", "shared_gone"}};
  int attempt = 0;
  for (const auto& [line, cause] : ends) {
    ++attempt;
    const double now = 10 + 0.2 * attempt;
    watch.take_signs(0, sign_of("log_tail", 3, line, attempt), now);
    RankEnd end{3, 0, 1, "", now};
    end.attempt = attempt;
    watch.take_end(std::move(end));
    watch.suspect(rank_failure(0, 3), now);
    const Failure failure = watch.diagnosed({0});
    EXPECT_EQ(failure.cause, cause);
    EXPECT_THAT(failure.evidence, HasSubstr(line));
    EXPECT_THAT(failure.seen, testing::IsEmpty()) << "what came before is evidence of nothing";
    watch.decided();
    watch.new_attempt();
  }
}

TEST(FailureWatch, TheLastSignsOfANodeAreNotThoseOfAnEarlierAttempt) {
  FailureWatch watch({"n0"});
  watch.take_signs(0, sign_of("log_tail", 3, "of attempt 1", 1), 10);
  watch.take_signs(0, sign_of("oom_kill", -1, "of attempt 1", 1), 10);
  watch.take_signs(0, sign_of("gpu_lost", -1, "GPU 0", 1), 10);
  watch.take_signs(0, sign_of("log_tail", 3, "of attempt 2", 2), 11);
  EXPECT_THAT(watch.last_signs(0, 2, 12),
              ElementsAre("1.0 s before: log_tail of attempt 2", "2.0 s before: gpu_lost GPU 0"));
}

}  // namespace
}  // namespace holdfast::launcher

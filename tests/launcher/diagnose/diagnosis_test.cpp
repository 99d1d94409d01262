// The culprit and not its victims: labelled failures one by one, and random ones by the
// figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/env.hpp"
#include "tests/launcher/diagnose/cases.hpp"

namespace holdfast::launcher {
namespace {

using test::end;
using test::Labelled;
using test::sign;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Diagnosis, LabelledCases) {
  for (const Labelled& c : test::labelled_cases()) {
    SCOPED_TRACE(c.name);
    const Diagnosis d = diagnose(c.ends, c.signs, {}, c.past);
    EXPECT_EQ(d.cause, c.truth.cause) << d.says;
    EXPECT_EQ(d.node, c.truth.node) << d.says;
    if (c.truth.rank >= 0) {
      EXPECT_EQ(d.rank, c.truth.rank) << d.says;
    }
    EXPECT_EQ(d.blame, c.truth.blame) << d.says;
    EXPECT_EQ(d.ends_node, c.truth.ends_node) << d.says;
    EXPECT_EQ(d.ended_nodes, d.ends_node ? std::vector<int>{d.node} : std::vector<int>{});
    EXPECT_FALSE(d.says.empty());
  }
}

/// Of diagnoses that name a node: how many are right (precision), and of failures that have a culprit, how
/// many are named (recall).
struct Score {
  int named_right = 0, named_wrong = 0, missed = 0;
  int cause_right = 0, ends_right = 0, all = 0;
  void add(const Labelled& c, const Diagnosis& d) {
    ++all;
    const bool right = d.node == c.truth.node && (c.truth.rank < 0 || d.rank < 0 || d.rank == c.truth.rank);
    if (d.node >= 0) ++(right ? named_right : named_wrong);
    if (c.truth.node >= 0 && !(d.node >= 0 && right)) ++missed;
    cause_right += d.cause == c.truth.cause;
    ends_right += d.ends_node == c.truth.ends_node;
  }
  double precision() const { return static_cast<double>(named_right) / (named_right + named_wrong); }
  double recall() const { return static_cast<double>(named_right) / (named_right + missed); }
  double f1() const { return 2 * precision() * recall() / (precision() + recall()); }
  void tell(const char* what) const {
    std::printf("%s: %d cases, precision %.4f, recall %.4f, F1 %.4f; cause %.4f, node ended or kept %.4f\n",
                what, all, precision(), recall(), f1(), 1.0 * cause_right / all, 1.0 * ends_right / all);
  }
};

TEST(DiagnosisOfRandomCases, Figures) {
  Score table, random;
  for (const Labelled& c : test::labelled_cases()) table.add(c, diagnose(c.ends, c.signs, {}, c.past));
  std::map<std::string, int> wrong;
  const auto cases = static_cast<unsigned>(env::get_integer("HOLDFAST_CASES").value_or(2000));
  for (unsigned seed = 1; seed <= cases; ++seed) {
    const Labelled c = test::random_case(seed);
    const Diagnosis d = diagnose(c.ends, c.signs, {}, c.past);
    random.add(c, d);
    if (d.node != c.truth.node || d.cause != c.truth.cause) ++wrong[c.name + " taken for " + d.kind];
  }
  table.tell("labelled"), random.tell("random");
  for (const auto& [what, count] : wrong) std::printf("  %s: %d\n", what.c_str(), count);
  EXPECT_GE(table.all, 60);
  EXPECT_EQ(table.f1(), 1.0);
  EXPECT_GE(random.f1(), 0.95);
  EXPECT_GE(random.cause_right, 0.95 * random.all);
  EXPECT_GE(random.ends_right, 0.95 * random.all);
}

TEST(Diagnosis, NothingIsNothing) {
  const Diagnosis d = diagnose({}, {});
  EXPECT_EQ(d.node, -1);
  EXPECT_EQ(d.rank, -1);
  EXPECT_TRUE(d.cause.empty());
}

TEST(Diagnosis, SignsAloneNameTheCulpritOfAHang) {
  const Diagnosis d = diagnose({}, {sign(0, "thermal", 3, "GPU 1"), sign(2, "link_down", 4, "mlx5_0 port 1")},
                               {"a", "b", "c"});
  EXPECT_EQ(d.node, 2);
  EXPECT_EQ(d.says, "a network link is down on c: mlx5_0 port 1");
  EXPECT_THAT(d.evidence, ElementsAre(HasSubstr("too hot on a: GPU 1")));
}

TEST(Diagnosis, TwoNodesMayFailAtOnce) {
  std::vector<RankEnd> ends;
  test::others(ends, 1, 10, {4, 5, 6, 7, 12, 13, 14, 15});
  const Diagnosis d = diagnose(ends, {sign(3, "gpu_lost", 9, "GPU 0"), sign(1, "xid", 9.1, "Xid", 79)});
  EXPECT_EQ(d.node, 3);
  EXPECT_THAT(d.ended_nodes, ElementsAre(3, 1));
}

TEST(Diagnosis, WhatEndsTheSameWayAgain) {
  const auto refuses = [](RankEnd of) { return of.our_codes = true, of; };
  EXPECT_TRUE(diagnose({refuses(end(3, 2, 1, "unknown key train.stepz"))}, {}).same_again);
  EXPECT_TRUE(diagnose({refuses(end(3, 93, 1))}, {}).same_again);
  EXPECT_FALSE(diagnose({end(3, 2, 1, "can't open file 'train.py'")}, {}).same_again)
      << "the exit code of a program that is not ours";
  EXPECT_FALSE(diagnose({end(3, 1, 1, "unknown key")}, {}).same_again);
  EXPECT_FALSE(diagnose({end(3, 127, 1)}, {}).same_again) << "a node may lack a mount";
  EXPECT_TRUE(diagnose({end(3, 127, 1), end(8, 127, 1.1)}, {}).same_again);
}

TEST(Diagnosis, TellsWhatItHasSeenFirstThingsFirst) {
  std::vector<RankEnd> ends{end(6, 137, 10)};
  test::others(ends, 1, 10.1, {6});
  const Diagnosis d =
      diagnose(ends, {sign(1, "oom_kill", 10.5, "oom_kill 0 -> 1", 1), sign(0, "thermal", 4, "GPU 1")},
               {"dgx001", "dgx002", "dgx003", "dgx004"});
  EXPECT_THAT(d.says, HasSubstr("dgx002"));
  EXPECT_EQ(d.rank, 6);
  ASSERT_EQ(d.evidence.size(), 13u) << "a dozen lines and a count";
  EXPECT_THAT(d.evidence[0], HasSubstr("-6.0 s: a GPU or processor slows down"));
  EXPECT_EQ(d.evidence[1], "+0.0 s: rank 6 on dgx002 was ended by signal 9");
  EXPECT_THAT(d.evidence[2], testing::StartsWith("+0.1 s: rank 0 on dgx001 ended with exit code 1: "));
  EXPECT_EQ(d.evidence.back(), "and 5 more");
}

TEST(Diagnosis, KeepsTheGpuForTheLedger) {
  const Diagnosis d =
      diagnose({end(1, 1, 10)}, {sign(0, "xid", 10, "GPU 3 (GPU-5f1b0a77-1234-5678-9abc-def012345678)", 79)});
  EXPECT_EQ(d.xid, 79);
  EXPECT_EQ(d.gpu, "GPU-5f1b0a77-1234-5678-9abc-def012345678");
  EXPECT_EQ(d.kind, "xid");
  EXPECT_THAT(d.advice, HasSubstr("reboot"));
}

TEST(Diagnosis, TellsWhichRankShowedAnXidWhereThatIsKnown) {
  const auto rank_of = [](std::vector<RankEnd> ends, int named) {
    return diagnose(ends, {sign(0, "xid", 10, "Xid 31", 31, named)}).xid_rank;
  };
  EXPECT_EQ(rank_of({end(1, 1, 10)}, -1), 1) << "the only one of its node that has failed";
  EXPECT_EQ(rank_of({end(1, 1, 10), end(2, 1, 10, "connection reset by peer")}, -1), 1);
  EXPECT_EQ(rank_of({end(1, 1, 10), end(2, 1, 10.1)}, -1), -1);
  EXPECT_EQ(rank_of({end(1, 1, 10), end(2, 1, 10.1)}, 2), 2) << "the sign says so";
}

TEST(Diagnosis, SaysByWhatNodesAreEnded) {
  const Diagnosis d = diagnose({end(1, 1, 10)}, {sign(0, "xid", 10, "GPU 3", 48), sign(2, "nic_failed", 10)});
  EXPECT_THAT(d.ended_by, ElementsAre(testing::Pair(0, "Xid 48"), testing::Pair(2, "nic_failed")));
}

SeenSign of_attempt(int attempt, SeenSign sign) {
  sign.sign.attempt = attempt;
  return sign;
}
RankEnd of_attempt(int attempt, RankEnd end) {
  end.attempt = attempt;
  return end;
}

TEST(Diagnosis, AnEarlierAttemptsSignsExplainNothing) {
  const RankEnd killed = of_attempt(2, end(1, 137, 10)), failed = of_attempt(2, end(1, 1, 10));
  const auto seen = [](int attempt, const char* kind, int rank = -1) {
    return std::vector{of_attempt(attempt, sign(0, kind, 9.8, "text", 1, rank))};
  };
  EXPECT_EQ(diagnose({killed}, seen(2, "oom_kill")).cause, "oom_kill");
  EXPECT_EQ(diagnose({killed}, seen(1, "oom_kill")).cause, "rank failed");
  EXPECT_EQ(diagnose({killed}, seen(1, "oom_kill", 1)).cause, "rank failed");
  EXPECT_THAT(diagnose({killed}, seen(1, "oom_kill")).evidence, testing::IsEmpty());
  EXPECT_EQ(diagnose({failed}, seen(2, "no_space_local")).cause, "no_space");
  EXPECT_EQ(diagnose({failed}, seen(1, "no_space_local")).cause, "rank failed");
  EXPECT_EQ(diagnose({failed}, seen(0, "no_space_local")).cause, "rank failed") << "of no attempt";
}

TEST(Diagnosis, AFaultThatLastsExplainsALaterAttempt) {
  const RankEnd failed = of_attempt(2, end(1, 1, 10, "CUDA error: unspecified launch failure"));
  Diagnosis d = diagnose({failed}, {of_attempt(1, sign(0, "gpu_lost", 5, "GPU 0"))});
  EXPECT_EQ(d.kind, "gpu_lost");
  const SeenSign gone = of_attempt(1, sign(0, "shared_gone", 8, "/shared/run"));
  EXPECT_EQ(diagnose({failed}, {gone}).cause, "shared_gone");
  d = diagnose({failed}, {gone, of_attempt(1, sign(0, "shared_back", 9, "/shared/run"))});
  EXPECT_EQ(d.kind, "cuda_error") << "it is over";
  d = diagnose({failed}, {of_attempt(1, sign(0, "xid", 9, "Xid", 13))});
  EXPECT_EQ(d.kind, "cuda_error") << "an Xid after which the GPU can be used ended that attempt alone";
}

TEST(Diagnosis, AKillThatItsAgentHasFoundToBeOfARankNeedsNoTime) {
  EXPECT_EQ(diagnose({end(1, 137, 10)}, {sign(0, "oom_kill", 6.5, "oom_kill 0 -> 1", 1, 1)}).cause,
            "oom_kill");
  EXPECT_EQ(diagnose({end(1, 137, 10)}, {sign(0, "oom_kill", 9.9, "oom_kill 0 -> 1", 1, 2)}).cause,
            "rank failed")
      << "another rank";
}

/// Whatever the end of a rank says, and however it ends, the node is not convicted by it.
TEST(Diagnosis, WhatAProgramWritesConvictsNoNode) {
  std::vector<std::string> texts = {"the word list has no entry for 'GPU is lost'"};
  for (const char* text :
       {"uncorrectable ecc error", "hardware error on the nvlink", "fallen off the bus",
        "no cuda-capable device", "system not yet initialized", "devices are busy or unavailable",
        "local catastrophic error", "device fatal", "async event: port error", "network is down",
        "read-only file system", "no room for the local level", "cannot create a process",
        "address already in use", "Xid 79"})
    texts.emplace_back(text);
  for (const int status : {1, 2, 75, 127, 134, 137, 139, -1})
    for (const auto& text : texts) {
      std::vector<RankEnd> ends{end(6, status, 10, text)};
      test::others(ends, 1, 10.1, {6});
      const Diagnosis d = diagnose(ends, {});
      EXPECT_FALSE(d.ends_node) << text << status;
      EXPECT_THAT(d.ended_nodes, testing::IsEmpty()) << text << status;
      EXPECT_NE(d.blame, Blame::node) << text << status;
    }
}

TEST(Diagnosis, AClaimIsSoWhereTheNodeShowsItItself) {
  const RankEnd says = end(6, 1, 10, "CUDA error: GPU is lost");
  const Diagnosis alone = diagnose({says}, {});
  EXPECT_EQ(alone.blame, Blame::claim);
  EXPECT_TRUE(alone.unproven);
  EXPECT_EQ(alone.cause, "gpu");
  EXPECT_EQ(alone.node, 1);
  EXPECT_THAT(alone.says, HasSubstr("; only the program says so"));
  EXPECT_THAT(alone.advice, testing::StartsWith("look into the program first"));
  const Diagnosis shown = diagnose({says}, {sign(1, "gpu_recovery", 10.5, "GPU 2", 2)});
  EXPECT_EQ(shown.blame, Blame::node);
  EXPECT_TRUE(shown.ends_node);
  EXPECT_FALSE(shown.unproven);
  EXPECT_FALSE(diagnose({says}, {sign(1, "xid", 10, "Xid", 94)}).ends_node) << "a contained error";
  // What a node shows explains more than what a rank says of another node, or of another fault.
  const Diagnosis other = diagnose({says}, {sign(2, "gpu_recovery", 10.5, "GPU 2", 2)});
  EXPECT_EQ(other.blame, Blame::node);
  EXPECT_EQ(other.node, 2);
  const Diagnosis check = diagnose({says}, {sign(1, "machine_check", 10.5)});
  EXPECT_EQ(check.blame, Blame::node);
  EXPECT_EQ(check.kind, "machine_check");
  EXPECT_EQ(diagnose({says}, {sign(2, "link_slow", 10.5)}).blame, Blame::claim)
      << "no fault that ends a node";
}

TEST(Diagnosis, UnknownKindsOfANewerAgentArePassedOver) {
  const Diagnosis d = diagnose({end(1, 139, 10)}, {sign(0, "flux_capacitor", 10, "1.21 GW")});
  EXPECT_EQ(d.kind, "segmentation_fault");
}

}  // namespace
}  // namespace holdfast::launcher

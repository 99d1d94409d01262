#include "src/train/engine/accuse.hpp"

#include <gmock/gmock.h>

namespace holdfast::train {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<std::uint64_t>;

TEST(AccuseReplicas, TheMinorityIsWrong) {
  const std::vector<int> kinds = {0, 1, 0, 1, 0, 1};
  const Numbers nobody(6);
  EXPECT_FALSE(replicas_differ(Numbers{7, 8, 7, 8, 7, 8}, kinds));
  EXPECT_TRUE(replicas_differ(Numbers{7, 8, 7, 8, 7, 9}, kinds));
  EXPECT_THAT(accuse_replicas(Numbers{7, 8, 7, 8, 7, 8}, kinds, nobody), ElementsAre());
  EXPECT_THAT(accuse_replicas(Numbers{7, 8, 7, 9, 7, 8}, kinds, nobody), ElementsAre(3));
  EXPECT_THAT(accuse_replicas(Numbers{1, 8, 7, 9, 7, 8}, kinds, nobody), ElementsAre(0, 3));
  EXPECT_THAT(accuse_replicas(Numbers{1, 8, 2, 8, 3, 8}, kinds, nobody), ElementsAre(0, 2, 4));
  EXPECT_THAT(accuse_replicas(Numbers{1, 8, 7, 8, 7, 8}, kinds, Numbers{0, 0, 1, 0, 0, 0}), ElementsAre(0))
      << "the majority is right, whatever it once sealed";
}

TEST(AccuseReplicas, OfTwoBothUnlessOneContradictsItself) {
  const std::vector<int> kinds = {0, 1, 0, 1};
  const Numbers seals = {7, 8, 7, 9};
  EXPECT_THAT(accuse_replicas(seals, kinds, Numbers(4)), ElementsAre(1, 3));
  EXPECT_THAT(accuse_replicas(seals, kinds, Numbers{0, 0, 0, 1}), ElementsAre(3));
  EXPECT_THAT(accuse_replicas(seals, kinds, Numbers{1, 0, 0, 0}), ElementsAre(1, 3)) << "of another kind";
  EXPECT_THAT(accuse_replicas(Numbers{5, 5, 6, 6}, std::vector<int>(4), Numbers(4)), ElementsAre(0, 1, 2, 3))
      << "two against two";
}

TEST(AccuseMicroBatch, ARestoredStateIsTrustedUpToTheComparisonBeforeIt) {
  EXPECT_EQ(vouched_by_micro_batch(0, 4), 0) << "nothing was computed";
  EXPECT_EQ(vouched_by_micro_batch(3, 4), 0) << "none was compared yet";
  EXPECT_EQ(vouched_by_micro_batch(4, 4), 3) << "step 4 was compared before it changed the state of step 3";
  EXPECT_EQ(vouched_by_micro_batch(7, 4), 3);
  EXPECT_EQ(vouched_by_micro_batch(8, 4), 7);
  EXPECT_EQ(vouched_by_micro_batch(5, 1), 4);
  EXPECT_EQ(vouched_by_micro_batch(5, 0), 5);
}

TEST(AccuseMicroBatch, WhoContradictsItselfElseWhomTheThirdOneContradicts) {
  struct Row {
    MicroBatchHashes hashes;
    bool owner, other;
  };
  for (const Row& row : {Row{{1, 2, 2, 2, {}}, true, false}, Row{{1, 2, 1, 1, {}}, false, true},
                         Row{{1, 2, 3, 4, {}}, true, true}, Row{{1, 2, 1, 2, {}}, true, true},
                         Row{{1, 2, 1, 2, 1}, false, true}, Row{{1, 2, 1, 2, 2}, true, false},
                         Row{{1, 2, 1, 2, 3}, true, true}}) {
    const MicroBatchBlame blame = accuse_micro_batch(row.hashes);
    EXPECT_EQ(blame.owner, row.owner);
    EXPECT_EQ(blame.other, row.other);
  }
}

TEST(SecondDistance, LeadsToOtherNodes) {
  EXPECT_EQ(second_distance(1, 1), 0);
  EXPECT_EQ(second_distance(4, 4), 1);
  EXPECT_EQ(second_distance(16, 8), 8);
  EXPECT_EQ(third_distance(16, 8), std::nullopt);
  EXPECT_EQ(third_distance(24, 8), 16);
}

TEST(Accuse, WhoComputesWhatIsNotFinite) {
  const std::vector<std::uint64_t> none(4);
  const auto at = [](std::size_t rank) {
    std::vector<std::uint64_t> out(4);
    out[rank] = 1;
    return out;
  };
  const auto blame = [](NotFiniteCounts counts, int distance) { return accuse_not_finite(counts, distance); };
  EXPECT_THAT(blame({none, at(1), none, none}, 2).accused, ElementsAre(1));
  EXPECT_THAT(blame({none, none, at(3), none}, 2).accused, ElementsAre(1)) << "the one two ranks behind";
  EXPECT_THAT(blame({none, none, none, at(2)}, 2).accused, ElementsAre(2)) << "its loss was not finite";
  EXPECT_THAT(blame({none, at(0), none, at(2)}, 2).accused, ElementsAre(0))
      << "what is found now counts more";
  EXPECT_THAT(blame({none, none, none, none}, 2).accused, ElementsAre());
  EXPECT_FALSE(blame({none, none, none, none}, 2).reproduced);
  const auto reproduced = blame({at(3), at(0), none, none}, 2);
  EXPECT_TRUE(reproduced.reproduced);
  EXPECT_THAT(reproduced.accused, ElementsAre()) << "the data or the state is wrong for all";
  EXPECT_THAT(blame({none, none, none, at(0)}, 0).accused, ElementsAre())
      << "there is nobody to compare with";
}

}  // namespace
}  // namespace holdfast::train

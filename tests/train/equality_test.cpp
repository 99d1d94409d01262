// The promise of the numerics: one digest for every strategy and world size, loss for loss.
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class Equality : public TrainingFixture {};

TEST_F(Equality, DigestAndLossesAreTheSameInEveryWorldAndStrategy) {
  const Finished alone = train(1, "alone", {"shard.strategy=no_shard"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  const auto expected = digest("alone");
  const auto curve = losses("alone");
  ASSERT_EQ(curve.size(), 10u);
  EXPECT_LT(curve.back(), curve.front() - 0.3) << "it should learn something";
  for (int world : {1, 2, 4})
    for (const std::string strategy : {"no_shard", "full_shard", "hybrid_shard"}) {
      const std::string dir = strategy + std::to_string(world);
      const Finished done = train(
          world, dir, {"shard.strategy=" + strategy, "shard.group=" + std::to_string(std::min(world, 2))});
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), expected) << dir;
      EXPECT_EQ(losses(dir), curve) << dir;
    }
}

TEST_F(Equality, HoldsForLeavesThatAreNotAPowerOfTwoAndATiedModel) {
  write("model.toml",
        "[model]\nname = \"odd\"\nvocabulary = 128\nwidth = 36\nlayers = 1\nheads = 3\nkv_heads = 1\nffn = "
        "50\nmax_sequence = 64\ntied_embeddings = true\n");
  const Sets shape = {"train.leaves=12", "train.lanes=6", "train.steps=4", "train.micro_batch=1",
                      "train.sequence=21"};
  auto with = [&](Sets sets) { return sets.insert(sets.end(), shape.begin(), shape.end()), sets; };
  ASSERT_EQ(train(1, "alone", shape).status, 0);
  for (const auto& [world, strategy, group] :
       {std::tuple{3, "full_shard", 0}, {3, "no_shard", 0}, {4, "hybrid_shard", 2}, {6, "hybrid_shard", 2}}) {
    const std::string dir = strategy + std::to_string(world);
    const Finished done =
        train(world, dir,
              with({std::string("shard.strategy=") + strategy, "shard.group=" + std::to_string(group)}));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(digest(dir), digest("alone")) << dir;
  }
}

TEST_F(Equality, OtherLanesGiveAnotherDigest) {  // the test above can fail
  ASSERT_EQ(train(1, "eight").status, 0);
  ASSERT_EQ(train(1, "two", {"train.lanes=2"}).status, 0);
  EXPECT_NE(digest("eight"), digest("two"));
}

TEST_F(Equality, RepeatedRunsAreEqualAndAnotherSeedIsNot) {
  ASSERT_EQ(train(2, "first").status, 0);
  ASSERT_EQ(train(2, "second").status, 0);
  ASSERT_EQ(train(2, "seed", {"train.seed=2"}).status, 0);
  ASSERT_EQ(train(2, "order", {"data.shuffle_seed=2"}).status, 0);
  EXPECT_EQ(digest("first"), digest("second"));
  EXPECT_NE(digest("first"), digest("seed"));
  EXPECT_NE(digest("first"), digest("order"));
}

}  // namespace
}  // namespace holdfast::train

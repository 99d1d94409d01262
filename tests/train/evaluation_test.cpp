// The loss on held-out text: the same number in every layout, and without any effect on training.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class Evaluation : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    write_tokens("held_out.bin", vocabulary, 32 * 7 + 1);  // seven samples: no multiple of anything
  }
  Sets evaluated() const {
    return {"data.validation=" + path("held_out.bin"), "eval.every=4", "eval.samples=100"};
  }
  std::vector<std::pair<int, double>> held_out(const std::string& dir) const {
    std::vector<std::pair<int, double>> out;
    for (const auto& line : metrics(dir))
      if (line.contains("held_out_loss")) out.emplace_back(line["step"], line["held_out_loss"]);
    return out;
  }
};

TEST_F(Evaluation, IsTheSameInEveryLayoutAndDoesNotTouchTraining) {
  ASSERT_EQ(train(1, "without").status, 0);
  const Finished alone = train(1, "alone", evaluated());
  ASSERT_EQ(alone.status, 0) << alone.err;
  const auto expected = held_out("alone");
  ASSERT_EQ(expected.size(), 3u);  // steps 4, 8 and the last
  EXPECT_EQ(expected[2].first, 10);
  EXPECT_LT(expected[2].second, expected[0].second) << "the held-out text has the same rule";
  EXPECT_EQ(digest("alone"), digest("without"));
  for (const auto& [world, strategy] : {std::pair{2, "full_shard"}, {4, "hfsdp"}, {2, "shard_grad_op"}}) {
    Sets sets = evaluated();
    sets.insert(sets.end(), {std::string("shard.strategy=") + strategy, "shard.group=2"});
    const Finished done = train(world, strategy, sets);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(held_out(strategy), expected) << strategy;
    EXPECT_EQ(digest(strategy), digest("without")) << strategy;
  }
}

TEST_F(Evaluation, WantsAValidationFile) {
  const Finished done = train(1, "run", {"eval.every=2"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, ::testing::HasSubstr("data.validation"));
}

}  // namespace
}  // namespace holdfast::train

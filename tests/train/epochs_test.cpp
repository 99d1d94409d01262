// A run whose length is given in epochs: the same run as one with that many steps.
#include <gmock/gmock.h>

#include "src/config/load.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class Epochs : public TrainingFixture {};

TEST_F(Epochs, AreTheStepsThatTheDataMake) {
  // 156 samples of 32 tokens and a label, 32 of them a step: 9.75 steps.
  const Finished steps = train(1, "steps");
  ASSERT_EQ(steps.status, 0) << steps.err;
  for (const int world : {1, 2}) {
    const std::string dir = "epochs" + std::to_string(world);
    const Finished epochs = train(world, dir, {"train.epochs=2", "shard.strategy=full_shard"});
    ASSERT_EQ(epochs.status, 0) << epochs.err;
    EXPECT_EQ(digest(dir), digest("steps"));
    EXPECT_EQ(losses(dir), losses("steps"));
    const auto settings = config::load(folder_ / dir / "config.toml").config.train;
    EXPECT_EQ(settings.steps, 10) << "the settings of the run have the steps";
    EXPECT_EQ(settings.epochs, 2);
  }
}

TEST_F(Epochs, ARunThatGoesOnKeepsItsLength) {
  const Sets two = {"train.epochs=2"};
  ASSERT_EQ(train(1, "whole", two).status, 0);
  ASSERT_EQ(train(2, "run", two).status, 0);
  std::filesystem::remove_all(checkpoint("run", 10));         // as if it had ended after step 5,
  std::filesystem::remove(folder_ / "run" / "durable.json");  // also by its record
  const Finished done = train(1, "run", two);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 5"));
  EXPECT_EQ(digest("run"), digest("whole"));
}

TEST_F(Epochs, OfTooFewDataAndOfMixturesAreRefused) {
  const Finished few = train(1, "few", {"train.epochs=2", "train.global_batch=160"});
  EXPECT_EQ(few.status, 3);
  EXPECT_THAT(few.err,
              HasSubstr("is smaller than one step (it has 156 samples, and train.global_batch is 160)"));
  const std::string part = path("tokens.bin");
  const Finished mixed =
      train(1, "mixed",
            {"train.epochs=2", "data.tokens=''", "data.mixture=[\"" + part + " 1\", \"" + part + " 2\"]"});
  EXPECT_EQ(mixed.status, 2);
  EXPECT_THAT(mixed.err, HasSubstr("train.epochs is set, and a mixture has no epochs"));
  const Finished both = train(1, "both", {"train.epochs=2", "train.steps=2"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("train.steps and train.epochs are both set"));
}

}  // namespace
}  // namespace holdfast::train

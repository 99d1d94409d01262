#include "src/preflight/length.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/scratch.hpp"
#include "tests/launcher/run_inputs.hpp"

namespace holdfast::preflight {
namespace {

using test::refusal_of;
using testing::HasSubstr;

class Length : public testing::Test {
 protected:
  Length() {
    config_.train.sequence = 16;
    config_.train.global_batch = 8;
    config_.train.steps = 0;
    config_.train.epochs = 2;
    model_.vocabulary = 256;
    config_.data.tokens = test::write_tokens(scratch_.path() / "tokens.bin", 256, 20 * 16 + 1);
  }
  const test::Scratch scratch_;
  config::RunConfig config_;
  config::ModelShape model_;
};

TEST_F(Length, FollowsFromTheSamplesOfTheFile) {
  EXPECT_EQ(samples_of_epoch(config_, model_), 20);
  EXPECT_EQ(with_steps(config_, model_).train.steps, 5);
  config_.data.tokens = test::write_tokens(scratch_.path() / "rows.bin", 256, 24 * 16, 16);
  EXPECT_EQ(with_steps(config_, model_).train.steps, 6) << "packed rows are samples";
}

TEST_F(Length, IsNotLookedForWhereItIsGiven) {
  config_.data.tokens = "/nowhere";
  config_.train.steps = 5;
  EXPECT_EQ(with_steps(config_, model_), config_);
}

TEST_F(Length, OfAMixtureIsNotKnown) {
  config_.data.mixture = {config_.data.tokens + " 1", config_.data.tokens + " 2"};
  config_.data.tokens.clear();
  EXPECT_EQ(samples_of_epoch(config_, model_), std::nullopt);
  config_.data.mixture.pop_back();
  EXPECT_EQ(samples_of_epoch(config_, model_), 20) << "one part is all of it";
}

TEST_F(Length, OfLessThanAStepIsRefused) {
  config_.train.global_batch = 21;
  auto refused = refusal_of([&] { with_steps(config_, model_); });
  EXPECT_EQ(refused.exit, Exit::impossible);
  EXPECT_THAT(refused.text,
              HasSubstr("is smaller than one step (it has 20 samples, and train.global_batch is "
                        "21). Set train.global_batch to 20 or less"));
  config_.train.global_batch = 8;
  config_.train.epochs = 0.25;
  refused = refusal_of([&] { with_steps(config_, model_); });
  EXPECT_EQ(refused.exit, Exit::impossible);
  EXPECT_THAT(refused.text,
              HasSubstr("train.epochs = 0.25 is less than one step (it is 5 of the 20 samples"));
}

}  // namespace
}  // namespace holdfast::preflight

#include "src/config/alternatives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/env.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using test::refusal_of;
using test::Scratch;
using testing::HasSubstr;

class Alternatives : public testing::Test {
 protected:
  Loaded of(const std::string& text, const std::vector<std::string>& sets = {}) const {
    return load(dir_.write("job.toml", text), sets);
  }
  const Scratch dir_;
};

TEST_F(Alternatives, TheOneThatIsGivenCounts) {
  const Loaded none = of("");
  EXPECT_EQ(none.config.train.steps, 100);
  EXPECT_EQ(none.config.train.epochs, 0);
  EXPECT_EQ(none.config.optim.warmup_steps, 10);
  const Loaded steps = of("[train]\nsteps = 7\n[optim]\nwarmup_steps = 3\n");
  EXPECT_EQ(steps.config.train.steps, 7);
  EXPECT_EQ(steps.config.optim.warmup_steps, 3);
  const Loaded epochs = of("[train]\nepochs = 0.5\n[optim]\nwarmup_ratio = 0.03\n");
  EXPECT_EQ(epochs.config.train.steps, 0) << "the data say";
  EXPECT_EQ(epochs.config.train.epochs, 0.5);
  EXPECT_EQ(epochs.config.optim.warmup_steps, 0);
  EXPECT_EQ(epochs.origin.at("train.steps"), "train.epochs");
  EXPECT_TRUE(is_replaced(epochs, "train.steps"));
  EXPECT_FALSE(is_replaced(epochs, "train.epochs"));
  EXPECT_FALSE(is_replaced(epochs, "train.sequence"));
}

TEST_F(Alternatives, AFlagCountsBeforeTheFile) {
  const Loaded shorter = of("[train]\nepochs = 3\n", {"train.steps=2"});
  EXPECT_EQ(shorter.config.train.steps, 2);
  EXPECT_EQ(shorter.config.train.epochs, 0);
  const Loaded whole = of("[train]\nsteps = 2\n", {"train.epochs=3"});
  EXPECT_EQ(whole.config.train.steps, 0);
  EXPECT_EQ(whole.config.train.epochs, 3);
}

TEST_F(Alternatives, BothFromOnePlaceAreRefused) {
  const auto file = refusal_of([&] { of("[train]\nsteps = 7\nepochs = 3\n"); });
  EXPECT_EQ(file.exit, Exit::usage);
  EXPECT_THAT(file.text, HasSubstr("train.steps and train.epochs are both set"));
  EXPECT_THAT(file.text, HasSubstr("job.toml:2"));
  EXPECT_THAT(refusal_of([&] {
                of("", {"optim.warmup_steps=1", "optim.warmup_ratio=0.1"});
              }).text,
              HasSubstr("optim.warmup_steps and optim.warmup_ratio are both set (both by flag)"));
  EXPECT_EQ(of("[train]\nsteps = 7\nepochs = 0\n").config.train.steps, 7) << "0 is not given";
}

TEST_F(Alternatives, AResolvedFileHasBoth) {
  RunConfig resolved;
  resolved.train.epochs = 3;
  resolved.train.steps = 750;
  const std::string text = to_toml(resolved);
  EXPECT_EQ(of(text).config, resolved);
  const Loaded other = of(text, {"train.epochs=2"});
  EXPECT_EQ(other.config.train.steps, 0) << "the others were those of three";
  EXPECT_EQ(of(text, {"train.steps=9"}).config.train.epochs, 0);
}

}  // namespace
}  // namespace holdfast::config

#include "src/train/loop/loss_memory.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

LossMemory sample() {
  LossMemory memory;
  memory.guard.steps = 3;
  memory.guard.losses[1] = 1.0 / 3.0;
  memory.best = {2.0 / 3.0, 40, 0.7, 2};
  return memory;
}

TEST(LossMemoryText, ComesBackBitForBit) {
  EXPECT_EQ(to_text(LossMemory{}), "");
  EXPECT_EQ(loss_memory_from_text(""), LossMemory{});
  EXPECT_EQ(loss_memory_from_text(to_text(sample())), sample());
  LossMemory only_best = sample();
  only_best.guard = {};
  EXPECT_EQ(loss_memory_from_text(to_text(only_best)), only_best);
}

TEST(LossMemoryText, IsTheDetectorsAloneWithoutABestLoss) {
  LossMemory memory = sample();
  memory.best = {};
  EXPECT_EQ(to_text(memory), to_text(memory.guard)) << "as in checkpoints of before";
}

TEST(LossMemoryText, RefusesWhatItDidNotWrite) {
  const std::string good = to_text(sample());
  std::string strange = good;
  strange.back() = 'g';
  for (const std::string& text : {good + "0", good.substr(0, good.size() - 1), strange, std::string("+")})
    EXPECT_THROW(loss_memory_from_text(text), Error) << text.size();
}

}  // namespace
}  // namespace holdfast::train

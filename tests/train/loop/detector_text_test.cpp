#include "src/train/loop/detector_text.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

TEST(DetectorText, ComesBackBitForBit) {
  EXPECT_EQ(to_text(optim::GuardState{}), "");
  EXPECT_EQ(guard_from_text(""), optim::GuardState{});
  optim::GuardState state;
  state.steps = 200;
  state.skips = 3;
  state.losses[0] = -0.0;
  state.losses[127] = std::numeric_limits<double>::denorm_min();
  state.norms[5] = 1.0 / 3.0;
  const std::string text = to_text(state);
  EXPECT_EQ(to_text(guard_from_text(text)), text);
  EXPECT_EQ(guard_from_text(text), state);
}

TEST(DetectorText, RefusesWhatItDidNotWrite) {
  optim::GuardState state;
  state.steps = 1;
  const std::string good = to_text(state);
  std::string strange = good;
  strange[20] = 'g';
  for (const std::string& text : {good.substr(1), good + "0", strange, std::string("calm")})
    EXPECT_THROW(guard_from_text(text), Error) << text.size();
}

}  // namespace
}  // namespace holdfast::train

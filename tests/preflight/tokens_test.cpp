#include "src/preflight/tokens.hpp"

#include <gtest/gtest.h>

#include "tests/config/scratch.hpp"
#include "tests/launcher/run_inputs.hpp"

namespace holdfast::preflight {
namespace {

// Rows need no token behind them, as labels stop inside.
TEST(TokenChecks, OneRowIsEnough) {
  const test::Scratch scratch;
  EXPECT_EQ(open_for(test::write_tokens(scratch.path() / "row", 256, 6, 6), 6, "tiny", 1000).size(), 6);
  const std::string text = test::write_tokens(scratch.path() / "text", 256, 6);
  EXPECT_THROW(open_for(text, 6, "tiny", 1000), Error);
}

}  // namespace
}  // namespace holdfast::preflight

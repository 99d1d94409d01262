#include "src/config/kept_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using testing::HasSubstr;

Shard keeping(const char* text, Strategy strategy = Strategy::full_shard) {
  Shard s;
  s.strategy = strategy;
  s.keep_gathered = text;
  return s;
}

TEST(KeptBlocks, ReadsNoneAllAndLists) {
  const auto kept = [](const char* text) { return kept_blocks(keeping(text), 8); };
  EXPECT_EQ(kept("none"), std::vector<bool>(8, false));
  EXPECT_EQ(kept("all"), std::vector<bool>(8, true));
  EXPECT_EQ(kept("0,3,5-7"), (std::vector<bool>{true, false, false, true, false, true, true, true}));
  EXPECT_EQ(kept("2-2"), (std::vector<bool>{false, false, true, false, false, false, false, false}));
  EXPECT_EQ(kept("0-7"), std::vector<bool>(8, true));
}

TEST(KeptBlocks, ShardGradOpKeepsAll) {
  for (const char* text : {"none", "all"})
    EXPECT_EQ(kept_blocks(keeping(text, Strategy::shard_grad_op), 3), std::vector<bool>(3, true));
  EXPECT_THAT(test::refusal_of([] { kept_blocks(keeping("0", Strategy::shard_grad_op), 3); }).text,
              HasSubstr("(shard_grad_op keeps all blocks)"));
}

TEST(KeptBlocks, IsStrict) {
  struct Case {
    const char *text, *says;
  };
  for (const Case& c : {Case{"", "('' is not a block). Write none, all, or blocks like 0,3,5-7?"},
                        {"All", "'All' is not a block"},
                        {"1,", "'' is not a block"},
                        {",1", "'' is not a block"},
                        {"1 ,2", "'1 ' is not a block"},
                        {"-1", "'' is not a block"},
                        {"1-", "'' is not a block"},
                        {"1-2-3", "'2-3' is not a block"},
                        {"99999999999", "is not a block"},
                        {"3-1", "(3-1 runs backwards). Write 1-3?"},
                        {"8", "(the model's blocks are 0 to 7). Use all?"},
                        {"0-2147483647", "the model's blocks are 0 to 7"}}) {
    SCOPED_TRACE(c.text);
    const auto refusal = test::refusal_of([&] { kept_blocks(keeping(c.text), 8); });
    EXPECT_THAT(refusal.text, HasSubstr(c.says));
    EXPECT_EQ(refusal.exit, Exit::usage);
  }
}

}  // namespace
}  // namespace holdfast::config

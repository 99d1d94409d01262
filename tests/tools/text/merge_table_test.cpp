#include "src/tools/text/merge_table.hpp"

#include <gtest/gtest.h>

#include <random>

namespace holdfast::text {
namespace {

/// The definition: the lowest rank, of equals the leftmost, until there is none.
std::vector<Token> merged_slowly(const MergeTable& table, std::vector<Token> tokens) {
  for (;;) {
    std::size_t best = 0;
    MergeTable::Found rule;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = table.find(tokens[i], tokens[i + 1]);
      if (found.rank < rule.rank) {
        rule = found;
        best = i;
      }
    }
    if (rule.rank == MergeTable::no_rank) return tokens;
    tokens[best] = rule.whole;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(WordMerger, JoinsByRankAndThenFromTheLeft) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<MergeRule> rules;
    for (Token whole = 4; whole < 40; ++whole) {  // several rules of one rank, and new tokens that join again
      const auto before = static_cast<unsigned>(whole);
      rules.push_back({static_cast<Token>(random() % before), static_cast<Token>(random() % before), whole,
                       static_cast<std::uint32_t>(random() % 20)});
    }
    const MergeTable table(rules);
    WordMerger merger(table);
    for (const std::size_t length : {0u, 1u, 2u, 3u, 10u, 47u, 48u, 49u, 50u, 300u}) {
      std::vector<Token> word(length);
      for (Token& token : word) token = static_cast<Token>(random() % 4);
      std::vector<Token> merged = word;
      merger.merge(merged);
      EXPECT_EQ(merged, merged_slowly(table, word)) << length;
    }
  }
}

TEST(MergeTable, OfTwoRulesForTheSameTokensTheLaterCounts) {
  const MergeTable table(std::vector<MergeRule>{{1, 2, 3, 0}, {1, 2, 4, 1}});
  EXPECT_EQ(table.find(1, 2).whole, 4);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::no_rank);
}

}  // namespace
}  // namespace holdfast::text

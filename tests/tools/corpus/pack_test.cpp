#include "src/tools/corpus/pack.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "src/base/as_size.hpp"
#include "tests/tools/corpus/generated.hpp"

namespace holdfast::corpus {
namespace {

std::int64_t tokens_of(const Row& row) {
  return std::accumulate(row.begin(), row.end(), std::int64_t{0},
                         [](std::int64_t sum, const Placed& placed) { return sum + placed.count; });
}

/// Packs documents 0, 1, ... of these lengths.
std::vector<Row> packed(const std::vector<std::int64_t>& lengths, std::int64_t row, int open) {
  Packer packer(row, open);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) packer.add(static_cast<std::int64_t>(i), lengths[i], rows);
  packer.finish(rows);
  return rows;
}

/// Median and spread as web text has them, in tokens.
std::vector<std::int64_t> log_normal(Dice& dice, std::size_t documents, double median, double sigma) {
  std::vector<std::int64_t> lengths(documents);
  for (auto& length : lengths)
    length = 1 + static_cast<std::int64_t>(median * std::exp(sigma * dice.normal()));
  return lengths;
}

double fill(const std::vector<Row>& rows, std::int64_t row) {
  std::int64_t tokens = 0;
  for (const Row& one : rows) tokens += tokens_of(one);
  return static_cast<double>(tokens) / static_cast<double>(row * std::ssize(rows));
}

TEST(Packer, PlacesEveryTokenOnceAndCutsOnlyLongDocuments) {
  Dice dice(1);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t row = 1 + static_cast<std::int64_t>(dice.below(60));
    const int most = 1 + static_cast<int>(dice.below(5));
    std::vector<std::int64_t> lengths(dice.below(120));
    for (auto& length : lengths)
      length = 1 + static_cast<std::int64_t>(dice.below(static_cast<std::uint64_t>(2 * row + 3)));

    Packer packer(row, most);
    std::vector<Row> rows;
    std::int64_t added = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::size_t before = rows.size();
      packer.add(static_cast<std::int64_t>(i), lengths[i], rows);
      added += lengths[i];
      // What is neither written nor held by `most` rows would be lost, or held by more.
      std::int64_t written = 0;
      for (const Row& one : rows) written += tokens_of(one);
      ASSERT_LE(added - written, (row - 1) * most);
      for (std::size_t r = before; r < rows.size(); ++r)
        for (const Placed& placed : rows[r]) ASSERT_LE(placed.document, static_cast<std::int64_t>(i));
    }
    const std::size_t closed = rows.size();
    packer.finish(rows);
    ASSERT_LE(rows.size() - closed, as_size(most));

    std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> pieces;  // document, first: count
    for (const Row& one : rows) {
      ASSERT_FALSE(one.empty());
      ASSERT_LE(tokens_of(one), row);
      for (std::size_t i = 0; i < one.size(); ++i) {
        ASSERT_TRUE(i == 0 || one[i - 1].document < one[i].document) << "out of order inside a row";
        ASSERT_TRUE(pieces[one[i].document].emplace(one[i].first, one[i].count).second);
      }
    }
    ASSERT_EQ(pieces.size(), lengths.size());
    for (const auto& [document, of] : pieces) {
      const std::int64_t length = lengths[document];
      ASSERT_EQ(std::ssize(of), (length + row - 1) / row);
      std::int64_t at = 0;
      for (const auto& [first, count] : of) {
        ASSERT_EQ(first, at);
        ASSERT_TRUE(first % row == 0 && count >= 1);
        at += count;
      }
      ASSERT_EQ(at, length);
    }
  }
}

TEST(Packer, GoesWhereItFitsBest) {
  Packer packer(10, 2);
  std::vector<Row> rows;
  packer.add(0, 6, rows);
  packer.add(1, 7, rows);
  packer.add(2, 3, rows);  // fills the row of 7, not the older one
  EXPECT_EQ(rows, (std::vector<Row>{{{1, 0, 7}, {2, 0, 3}}}));
  packer.add(3, 10, rows);  // a whole row
  packer.add(4, 25, rows);  // two of them, and 5 tokens in a row of their own
  packer.add(5, 9, rows);   // one row too many: the fullest goes, which is this one
  packer.add(6, 8, rows);
  packer.add(7, 4, rows);  // fills the row of 6
  packer.finish(rows);
  EXPECT_EQ(rows, (std::vector<Row>{{{1, 0, 7}, {2, 0, 3}},
                                    {{3, 0, 10}},
                                    {{4, 0, 10}},
                                    {{4, 10, 10}},
                                    {{5, 0, 9}},
                                    {{6, 0, 8}},
                                    {{0, 0, 6}, {7, 0, 4}},
                                    {{4, 20, 5}}}));
}

TEST(Packer, OfEqualRowsTheOldestIsTaken) {
  Packer packer(10, 3);
  std::vector<Row> rows;
  for (int document = 0; document < 4; ++document) packer.add(document, 6, rows);
  EXPECT_EQ(rows, (std::vector<Row>{{{0, 0, 6}}}));  // three are open, as full as each other
  packer.add(4, 4, rows);
  EXPECT_EQ(rows.back(), (Row{{1, 0, 6}, {4, 0, 4}}));
}

TEST(Packer, GivesTheSameRowsEachTimeAndStartsAgain) {
  Dice dice(2);
  const auto lengths = log_normal(dice, 3000, 500, 1.2);
  const auto expected = packed(lengths, 2048, 16);
  EXPECT_EQ(packed(lengths, 2048, 16), expected);
  Packer packer(2048, 16);
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      packer.add(static_cast<std::int64_t>(i), lengths[i], rows);
    packer.finish(rows);
    EXPECT_EQ(rows, expected);
  }
}

TEST(Packer, FillsRowsWithRealisticDocuments) {
  Dice dice(3);
  for (const std::int64_t row : {2048, 4096, 8192})
    for (const double median : {120.0, 400.0, 1000.0})
      for (const double sigma : {0.8, 1.2}) {
        const auto rows = packed(log_normal(dice, 20000, median, sigma), row, 256);
        const double share = fill(rows, row);
        fmt::print("rows of {}, documents of {} tokens, sigma {}: {:.2f} % full\n", row, median, sigma,
                   100 * share);
        EXPECT_GE(share, 0.95);
      }
}

}  // namespace
}  // namespace holdfast::corpus

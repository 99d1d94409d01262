// The closed form of who writes what: what its proof accepts holds every element once, and nothing else does.
#include "checkpoint/index/writer_layout.hpp"

#include <gtest/gtest.h>

#include <random>

#include "checkpoint/index/manifest.hpp"
#include "src/base/as_size.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

bool is_proven(const std::vector<LogicalTensor>& tensors, const WriterLayout& layout) {
  try {
    prove_layout(tensors, layout);
    return true;
  } catch (const Damaged&) {
    return false;
  }
}

/// By counting.
bool has_every_element_once(const std::vector<LogicalTensor>& tensors, const WriterLayout& layout) {
  std::vector<std::vector<int>> times;
  for (const LogicalTensor& tensor : tensors) times.emplace_back(as_size(tensor.elements()));
  for (const auto& spans : all_spans(tensors, layout))
    for (const PieceSpan& span : spans)
      for (std::int64_t i = 0; i < span.count; ++i) ++times.at(span.tensor).at(span.first + i);
  for (const auto& tensor : times)
    for (const int n : tensor)
      if (n != 1) return false;
  return true;
}

TEST(WriterLayout, isProvenExactlyWhenItHoldsEveryElementOnce) {
  std::mt19937 random(7);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  int proven = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::int64_t> sizes;
    for (int t = pick(1, 4); t > 0; --t) sizes.push_back(pick(0, 9));
    const std::vector<LogicalTensor> tensors = vectors(sizes);
    WriterLayout layout{pick(1, 4), pick(1, 3), {}};
    for (int left = static_cast<int>(sizes.size()); left > 0; left -= layout.cuts.back().tensors)
      layout.cuts.push_back({pick(1, left), pick(1, 12), pick(1, 6)});
    ASSERT_EQ(is_proven(tensors, layout), has_every_element_once(tensors, layout)) << round;
    proven += is_proven(tensors, layout);
  }
  EXPECT_GT(proven, 400);
  EXPECT_LT(proven, 3600);
}

TEST(WriterLayout, placesPiecesWithoutGapsAndOnMultiplesOfTheirElements) {
  std::vector<LogicalTensor> tensors = vectors({3, 5, 7, 1});
  tensors[0].type = tensors[2].type = DType::bf16;
  const std::vector<StoredPiece> pieces = placed(tensors, whole_spans(tensors), 4096);
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[1].offset, 4096);
  EXPECT_EQ(pieces[3].offset, 4096 + 20);
  EXPECT_EQ(pieces[0].offset, 4096 + 24);
  EXPECT_EQ(pieces[2].offset, 4096 + 30);
}

}  // namespace
}  // namespace holdfast::checkpoint

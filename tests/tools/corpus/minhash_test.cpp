#include "src/tools/corpus/minhash.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/base/as_size.hpp"
#include "src/tools/corpus/signature.hpp"
#include "tests/tools/corpus/generated.hpp"

namespace holdfast::corpus {
namespace {

using Hashes = std::vector<std::uint64_t>;

Hashes hashes(std::string_view text, const MinHashShape& shape = {}) {
  Hashes out(as_size(shape.bands));
  band_hashes(text, shape, out);
  return out;
}

int equal_bands(const Hashes& a, const Hashes& b) {
  int equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return equal;
}

TEST(Signature, IsTheSameWhateverTheVectors) {
  Dice dice(1);
  // plain twice where there is nothing wider: still a test that parts of a set add up.
  const std::vector<Lanes> all = {Lanes::plain, widest_lanes()};
  for (std::size_t length = 8; length <= max_hashes; length += length < 160 ? 8 : 288)
    for (const std::size_t count : {0, 1, 5, 300}) {
      std::vector<std::uint32_t> elements(count);
      for (auto& element : elements) element = static_cast<std::uint32_t>(dice.next());
      std::vector<std::uint32_t> expected(length, ~0u), half(length, ~0u);
      lower(expected, elements, Lanes::plain);
      EXPECT_EQ(count == 0, expected.front() == ~0u);
      for (const Lanes lanes : all) {
        std::vector<std::uint32_t> signature(length, ~0u);
        lower(signature, std::span(elements).first(count / 2), lanes);
        lower(signature, std::span(elements).subspan(count / 2), lanes);
        EXPECT_EQ(signature, expected) << length;
      }
    }
}

TEST(MinHash, ShapesAreSteepWhereAsked) {
  EXPECT_EQ(shape_for(0.8), (MinHashShape{5, 11, 11}));
  EXPECT_EQ(shape_for(0.75), (MinHashShape{5, 14, 9}));
  EXPECT_EQ(shape_for(0.72, 112), (MinHashShape{5, 14, 8}));
  for (int percent = 1; percent < 100; ++percent)
    for (const int most : {2, 64, 128, 1024}) {
      const double wanted = percent / 100.0;
      const MinHashShape shape = shape_for(wanted, most);
      ASSERT_TRUE(shape.rows >= 2 && shape.bands >= 1 && shape.bands * shape.rows <= most);
      const auto off = [&](int rows) { return std::abs(std::pow(most / rows, -1.0 / rows) - wanted); };
      for (int rows = 2; rows <= most; ++rows) EXPECT_LE(off(shape.rows), off(rows) + 1e-12) << wanted;
      if (most == 128 && percent >= 12 && percent <= 95) {
        EXPECT_LT(off(shape.rows), 0.09) << wanted;
      }
    }
}

TEST(MinHash, TextsShorterThanAShingleHaveNoBands) {
  for (const char* text : {"", "one two three four", "... -- !", "a-b-c-d-e"})
    EXPECT_EQ(hashes(text), Hashes(14, 0)) << text;
  EXPECT_EQ(equal_bands(hashes("one two three four five"), Hashes(14, 0)), 0);
  EXPECT_EQ(equal_bands(hashes("one", {1, 14, 8}), Hashes(14, 0)), 0);
}

TEST(MinHash, DoesNotSeeCasePunctuationOrLineBreaks) {
  EXPECT_EQ(hashes("It was the best of times, it was the worst of times."),
            hashes("it was the BEST\nof times\tIt was the (worst) of times"));
  EXPECT_EQ(equal_bands(hashes("one two three four five"), hashes("five four three two one")), 0);
}

TEST(MinHash, SeesEveryShingleAndNotWhereItIs) {
  // Words in a circle: wherever the text begins, the shingles are the same. Lengths about those that are
  // hashed at a time; so many hashes that a shingle left out at a seam shows.
  const MinHashShape shape{5, 1024, 1};
  for (const std::size_t words : {500u, 508u, 509u, 512u, 513u, 517u, 1020u, 1029u}) {
    Text circle(words);
    for (std::size_t i = 0; i < words; ++i) circle[i] = fmt::format("word{}", i);
    Hashes expected;
    for (std::size_t from : {std::size_t{0}, std::size_t{1}, std::size_t{250}, words - 3}) {
      Text text;
      for (std::size_t i = 0; i < words + 4; ++i) text.push_back(circle[(from + i) % words]);
      if (expected.empty()) expected = hashes(joined(text), shape);
      EXPECT_EQ(hashes(joined(text), shape), expected) << words;
    }
    circle[7] = "another";
    EXPECT_NE(hashes(joined(circle), shape), expected);
  }
}

TEST(MinHash, IsTheSameOnEveryMachine) {
  // Written down: fingerprints of parts of a corpus are made on different nodes.
  const Hashes made =
      hashes("We hold these truths to be self-evident, that all men are created equal. 我们认为");
  EXPECT_EQ(fmt::format("{:016x} {:016x}", made.front(), made.back()), "f3653398819b7a32 33e126b566c56789");
}

TEST(MinHash, FindsPairsAsOftenAsTheFormulaSays) {
  // Pairs of texts in which a share of the words differs: in each shape, the number of equal bands is what
  // their exact similarity gives, and so is the number of pairs found. Were permutations related to each
  // other, or bands, it would not be.
  Dice dice(4);
  struct Sum {
    double expected = 0, variance = 0, seen = 0;
    void add(double probability, double trials, double successes) {
      expected += probability * trials, variance += probability * (1 - probability) * trials,
          seen += successes;
    }
    double off() const { return (seen - expected) / std::sqrt(variance); }
  };
  for (const MinHashShape& shape : {MinHashShape{5, 14, 8}, shape_for(0.8), shape_for(0.5),
                                    MinHashShape{5, 128, 1}, MinHashShape{3, 32, 4}}) {
    Sum bands, pairs;
    for (int pair = 0; pair < 400; ++pair) {
      const Text text = some_text(dice, 40 + dice.below(400));
      const Text other = edited(text, 0.005 * std::pow(2, pair % 6), dice);
      Shingles shingles(std::size_t(shape.shingle));
      const double s = similarity(shingles.of(text), shingles.of(other));
      const int equal = equal_bands(hashes(joined(text), shape), hashes(joined(other), shape));
      const double one_band = std::pow(s, shape.rows);
      bands.add(one_band, shape.bands, equal);
      pairs.add(1 - std::pow(1 - one_band, shape.bands), 1, equal > 0);
    }
    SCOPED_TRACE(fmt::format("{} x {}: {} bands equal, {:.0f} expected; {} pairs found, {:.0f} expected",
                             shape.bands, shape.rows, bands.seen, bands.expected, pairs.seen,
                             pairs.expected));
    EXPECT_LT(std::abs(bands.off()), 3);
    EXPECT_LT(std::abs(pairs.off()), 3);
  }
}

}  // namespace
}  // namespace holdfast::corpus

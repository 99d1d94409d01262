#include "src/tools/corpus/dedupe.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <unordered_set>

#include "src/base/as_size.hpp"
#include "tests/tools/corpus/generated.hpp"

namespace holdfast::corpus {
namespace {

Fingerprints fingerprints_of(const std::vector<std::string>& texts, const MinHashShape& shape) {
  const auto bands = as_size(shape.bands);
  Fingerprints all;
  all.bands.resize(texts.size() * bands);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    all.exact.push_back(data::hash_bytes(texts[i]));
    band_hashes(texts[i], shape, std::span(all.bands).subspan(i * bands, bands));
  }
  return all;
}

/// The definition, document by document.
Kept one_by_one(const Fingerprints& all, int bands) {
  Kept kept;
  std::map<data::Hash128, int> seen;
  std::vector<std::unordered_set<std::uint64_t>> of_kept(bands);
  for (std::size_t i = 0; i < all.exact.size(); ++i) {
    bool near = false;
    const std::uint64_t* hash = all.bands.data() + i * of_kept.size();
    for (std::size_t b = 0; b < of_kept.size(); ++b) near |= hash[b] != 0 && of_kept[b].contains(hash[b]);
    const bool equal = seen[all.exact[i]]++ > 0;
    kept.exact += equal;
    kept.near += !equal && near;
    kept.keep.push_back(!equal && !near);
    if (kept.keep.back())
      for (std::size_t b = 0; b < of_kept.size(); ++b) of_kept[b].insert(hash[b]);
  }
  return kept;
}

/// Documents with hashes out of so few that there are groups, chains and zeros.
Fingerprints crowded(Dice& dice, std::size_t documents, int bands, std::uint64_t values) {
  Fingerprints all;
  for (std::size_t i = 0; i < documents; ++i) {
    data::Hash128 hash{};
    hash[dice.below(2) * 15] = static_cast<std::uint8_t>(dice.below(200));
    all.exact.push_back(hash);
    for (int b = 0; b < bands; ++b) all.bands.push_back(dice.below(values));
  }
  return all;
}

TEST(Dedupe, IsWhatTheDefinitionSays) {
  Dice dice(1);
  std::int64_t exact = 0, near = 0, kept = 0;
  for (int round = 0; round < 600; ++round) {
    const int bands = static_cast<int>(dice.below(5));
    const Fingerprints all = crowded(dice, dice.below(200), bands, 2 + dice.below(500));
    const Kept expected = one_by_one(all, bands), made = dedupe(all, bands);
    ASSERT_EQ(made.keep, expected.keep);
    ASSERT_EQ(made.exact, expected.exact);
    ASSERT_EQ(made.near, expected.near);
    exact += made.exact;
    near += made.near;
    kept += std::count(made.keep.begin(), made.keep.end(), true);
  }
  EXPECT_GT(exact, 1000);
  EXPECT_GT(near, 1000);
  EXPECT_GT(kept, 1000);
}

TEST(Dedupe, AChainIsNotAGroup) {
  // b is like a, c like b but not like a; d is like c. a and c stay.
  Fingerprints all;
  for (std::uint8_t i = 0; i < 4; ++i) all.exact.push_back({i});
  all.bands = {1, 10, /**/ 1, 20, /**/ 2, 20, /**/ 2, 30};
  const Kept made = dedupe(all, 2);
  EXPECT_EQ(made.keep, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(made.near, 2);
}

TEST(Dedupe, EqualTextsAreRemovedWithoutBandsAndBeforeThem) {
  const std::vector<std::string> texts = {"", "one", "one", "", "two", "One"};
  EXPECT_EQ(dedupe({fingerprints_of(texts, {}).exact, {}}, 0).keep,
            (std::vector<bool>{true, true, false, false, true, true}));
  const Kept made = dedupe(fingerprints_of(texts, {}), MinHashShape{}.bands);
  EXPECT_EQ(made.exact, 2);
  EXPECT_EQ(made.near, 0);  // too short to be like anything
  EXPECT_TRUE(dedupe({}, 14).keep.empty());
}

TEST(Dedupe, FirstDocumentsDoNotDependOnLaterOnes) {
  // A prefix of the corpus keeps what it keeps alone: however the corpus is cut, the parts' fingerprints
  // one behind the other are all that counts.
  Dice dice(2);
  const Fingerprints all = crowded(dice, 300, 3, 300);
  const Kept whole = dedupe(all, 3);
  for (std::ptrdiff_t cut = 0; cut <= 300; cut += 17) {
    const Fingerprints part{{all.exact.begin(), all.exact.begin() + cut},
                            {all.bands.begin(), all.bands.begin() + 3 * cut}};
    EXPECT_EQ(dedupe(part, 3).keep, std::vector<bool>(whole.keep.begin(), whole.keep.begin() + cut));
  }
}

TEST(Dedupe, RecallAndPrecisionOfEditedTexts) {
  // 120 originals with 4 edited versions each. Against exact similarities: what is removed as near has its
  // like, and of versions as like as the shape asks for nearly all are removed.
  Dice dice(3);
  const MinHashShape shape = shape_for(0.8);
  const double asked = std::pow(1.0 / shape.bands, 1.0 / shape.rows);
  std::vector<Text> texts;
  for (int i = 0; i < 120; ++i) {
    const Text original = some_text(dice, 100 + dice.below(500));
    texts.push_back(original);
    for (const double share : {0.005, 0.02, 0.05, 0.2}) texts.push_back(edited(original, share, dice));
  }
  for (std::size_t i = texts.size(); i > 1; --i) std::swap(texts[i - 1], texts[dice.below(i)]);

  std::vector<std::string> lines;
  std::vector<std::vector<int>> shingles;
  Shingles numbered(std::size_t(shape.shingle));
  for (const Text& text : texts) lines.push_back(joined(text)), shingles.push_back(numbered.of(text));
  const Kept made = dedupe(fingerprints_of(lines, shape), shape.bands);

  int like = 0, like_removed = 0, removed = 0, wrongly = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    double nearest = 0;  // to an earlier one that is kept
    for (std::size_t j = 0; j < i; ++j)
      if (made.keep[j]) nearest = std::max(nearest, similarity(shingles[i], shingles[j]));
    removed += !made.keep[i];
    wrongly += !made.keep[i] && nearest < asked - 0.15;
    EXPECT_TRUE(made.keep[i] || nearest >= asked / 2) << nearest;
    if (nearest >= 0.9) {
      ++like;
      like_removed += !made.keep[i];
    }
  }
  fmt::print(
      "{} of {} with a similarity of 0.9 or more were removed; {} removed in all, {} of them below {:.2f}\n",
      like_removed, like, removed, wrongly, asked - 0.15);
  EXPECT_GT(like, 50);
  EXPECT_GE(like_removed, like * 98 / 100);
  EXPECT_LE(wrongly, removed * 5 / 100);
}

}  // namespace
}  // namespace holdfast::corpus

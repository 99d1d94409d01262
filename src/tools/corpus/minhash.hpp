#pragma once
// Near-duplicates by MinHash and locality-sensitive hashing (Broder, "On the resemblance and containment of
// documents", 1997; Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", chapter 3): documents that
// share a band of their signatures are taken for nearly equal.
#include <cstdint>
#include <span>
#include <string_view>

namespace holdfast::corpus {

/// Jaccard similarity of sets of word shingles. `bands` bands of `rows` hashes find a pair of similarity s
/// with probability 1 - (1 - s^rows)^bands, which is steepest about (1 / bands)^(1 / rows).
///
/// One word changed changes `shingle` shingles: of two texts that differ in a share e of words here and
/// there, about p = (1 - e)^shingle of the shingles agree, and s = p / (2 - p). With shingles of 5, 1 % of
/// words leave 0.91, 3 % leave 0.75, 5 % leave 0.63.
struct MinHashShape {
  int shingle = 5;           ///< words, 1 to 64
  int bands = 14, rows = 8;  ///< bands * rows <= 1024
  bool operator==(const MinHashShape&) const = default;
};

/// The shape whose curve is steepest nearest to `similarity`, in (0, 1). For each number of rows from 2 on,
/// it looks at as many bands as `most` hashes (2 to 1024) give: more bands make a steeper curve. One row is
/// never chosen, because among many documents a single equal hash is an accident too often.
MinHashShape shape_for(double similarity, int most = 128);

/// Hashes of the bands of one text (valid UTF-8) into `out`, `shape.bands` of them; all 0 when it has fewer
/// words than a shingle. Words are those of src/tools/corpus/words.hpp. A function of text and shape alone:
/// integer arithmetic, the same on every machine.
///
/// A shingle is a hash of 32 bits. The least of n shingles says less the nearer n comes to 2^32, so texts of
/// more than some hundred million words would be found too similar.
void band_hashes(std::string_view text, const MinHashShape& shape, std::span<std::uint64_t> out);

}  // namespace holdfast::corpus

#pragma once
// Which documents of a corpus are kept. Pure, and independent of how the corpus was cut into parts: of equal
// or nearly equal documents the first one in the order of the inputs stays.
//
// A document is removed as nearly equal when it shares a band with an earlier document **that is kept**. So
// every removed document has its like among what is kept, and no two kept ones share a band. Taking whole
// connected components instead would remove c of a ~ b ~ c although it is not like a: in large corpora such
// chains run through thousands of documents (boilerplate, licences) and leave one of them.
#include <cstdint>
#include <vector>

#include "src/data/token_file.hpp"
#include "src/tools/corpus/minhash.hpp"

namespace holdfast::corpus {

/// What is remembered of one document: 16 bytes, and with near-duplicates `bands` times 8.
struct Fingerprints {
  std::vector<data::Hash128> exact;  ///< of the text's bytes, one per document, in order
  std::vector<std::uint64_t> bands;  ///< band_hashes() of each document; empty: exact duplicates only
};

struct Kept {
  std::vector<bool> keep;            ///< one per document
  std::int64_t exact = 0, near = 0;  ///< removed as equal; as nearly equal
};

/// `bands`: per document, 0 for exact duplicates only. A band of 0 is like nothing: documents too short for a
/// shingle have only such. Fewer than 2^32 documents.
///
/// Time is that of sorting the documents once, and once more for each band. Memory beside `all`, in bytes per
/// document: at most 24 for sorting, and 8 for each of its bands that another document has too, which is
/// little unless the corpus is mostly duplicates. 10^8 documents of 14 bands: 12.8 GB of fingerprints, and
/// 2.4 to 12.8 GB more.
Kept dedupe(const Fingerprints& all, int bands);

}  // namespace holdfast::corpus

#pragma once
// A part of the corpus as tokens: documents that are kept, each on its side of the held-out split, in token
// files of the work folder.
#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/fingerprints.hpp"
#include "src/tools/corpus/part_result.hpp"
#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

/// `kept`: null when duplicates stay. The part's files are there when it returns.
void encode_part(const Plan& plan, std::size_t part, const KeptDocuments* kept, Tally& tally);

}  // namespace holdfast::corpus

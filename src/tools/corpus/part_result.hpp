#pragma once
// What became of a part: counts, and what was wrong. Written when its token files are there.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/tools/corpus/plan.hpp"
#include "src/tools/corpus/reader.hpp"

namespace holdfast::corpus {

struct SideCounts {
  std::int64_t documents = 0, tokens = 0;
};

struct PartResult {
  ReadCounts read;
  std::int64_t unknown = 0;    ///< tokens that stand for what the vocabulary cannot spell
  std::int64_t rewritten = 0;  ///< turns that are not learned since their template changed them later
  SideCounts train, validation;
  std::vector<Broken> broken;  ///< the first Reader::max_listed
  std::vector<RangeCounts> ranges;
  std::map<std::uint32_t, std::string> hashes;  ///< XXH3-128 of the files that begin in this part, in hex
};

void save(const Plan& plan, std::size_t part, const PartResult& result);
bool is_done(const Plan& plan, std::size_t part);
/// Error (runtime) when the part is not done.
PartResult load_result(const Plan& plan, std::size_t part);

}  // namespace holdfast::corpus

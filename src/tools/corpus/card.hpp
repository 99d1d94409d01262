#pragma once
// OUTPUT.card.json: what a corpus was made of, and how. A function of input and settings: no times, no hosts.
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "src/tools/corpus/fingerprints.hpp"
#include "src/tools/corpus/merge.hpp"
#include "src/tools/corpus/part_result.hpp"
#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

/// All parts together.
struct Totals {
  ReadCounts read;
  std::int64_t unknown = 0, rewritten = 0;
  Removed removed;
  struct BrokenLine {
    std::filesystem::path path;
    std::uint64_t line = 0;  ///< of the file, from 1
    std::string why;
  };
  std::vector<BrokenLine> broken;   ///< the first Reader::max_listed
  std::vector<std::string> hashes;  ///< of each input, in hex
};

/// `results`: one of each part, in order.
Totals total(const Plan& plan, const std::vector<PartResult>& results, Removed removed);

nlohmann::ordered_json card_of(const Plan& plan, const Totals& totals, const MergedFile& train,
                               const std::optional<MergedFile>& validation);

}  // namespace holdfast::corpus

#pragma once
// Duplicates over all parts: fingerprints of each part's documents, and which of them are kept, in files of
// the work folder.
#include <cstdint>
#include <vector>

#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

/// Fingerprints of a part's documents into their file.
void scan_part(const Plan& plan, std::size_t part, Tally& tally);
bool is_scanned(const Plan& plan, std::size_t part);

/// From the fingerprints of all parts; Error (runtime) names a part that has none.
void remove_duplicates(const Plan& plan);
bool are_duplicates_removed(const Plan& plan);

struct Removed {
  std::int64_t exact = 0, near = 0;
};

/// What remove_duplicates() found.
class KeptDocuments {
 public:
  explicit KeptDocuments(const Plan& plan);
  Removed removed() const { return removed_; }
  std::uint64_t documents(std::size_t part) const { return first_[part + 1] - first_[part]; }
  bool keeps(std::size_t part, std::uint64_t document) const { return keep_[first_[part] + document]; }

 private:
  Removed removed_;
  std::vector<std::uint64_t> first_;  ///< of each part, then how many there are in all
  std::vector<bool> keep_;
};

}  // namespace holdfast::corpus

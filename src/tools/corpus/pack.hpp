#pragma once
// Whole documents into rows of a fixed length, so that a short one is never cut: bins are filled best fit, a
// bounded number of them open at a time, in the order of the documents (Coffman, Garey, Johnson,
// "Approximation algorithms for bin packing", 1996, bounded-space best fit).
//
// Rows are not always full: what the end of a row cannot hold is the caller's to fill. Documents of just over
// half a row leave the other half empty, whatever the order.
#include <cstdint>
#include <vector>

namespace holdfast::corpus {

/// Tokens [first, first + count) of document `document`, at the end of what its row holds so far.
struct Placed {
  std::int64_t document = 0, first = 0, count = 0;
  bool operator==(const Placed&) const = default;
};
using Row = std::vector<Placed>;

class Packer {
 public:
  /// `row`: tokens, at least 1. `open`: rows that are filled at a time, at least 1.
  explicit Packer(std::int64_t row, int open = 256);
  /// The next document, of `tokens` >= 1 tokens; longer ones are cut at multiples of a row, and the rest
  /// packed. Full rows, and the fullest when too many are open (of equals the oldest), go to `out`, behind
  /// what it holds, in the order in which they were closed.
  void add(std::int64_t document, std::int64_t tokens, std::vector<Row>& out);
  /// All that are still open, in the order in which they were opened. The packer is then empty.
  void finish(std::vector<Row>& out);

 private:
  struct Open {
    std::int64_t left = 0;  ///< tokens that still fit
    Row placed;
  };
  void close(std::size_t which, std::vector<Row>& out);

  std::int64_t row_;
  std::size_t most_;
  std::vector<Open> open_;  ///< in the order in which they were opened
};

}  // namespace holdfast::corpus

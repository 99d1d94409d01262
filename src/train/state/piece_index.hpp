#pragma once
// Spans of what a rank holds: in which of its pieces each lies, and with that where.
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {

class PieceIndex {
 public:
  explicit PieceIndex(const checkpoint::State& held) {
    for (std::size_t i = 0; i < held.pieces.size(); ++i)
      at_[{held.pieces[i].tensor, held.pieces[i].first}] = static_cast<int>(i);
  }
  /// The piece in which `span` lies as a whole; the caller knows that there is one.
  int piece(const checkpoint::PieceSpan& span) const {
    const auto behind = at_.upper_bound({span.tensor, span.first});
    expects(behind != at_.begin(), "a span lies in a piece");
    return std::prev(behind)->second;
  }

 private:
  std::map<std::pair<int, std::int64_t>, int> at_;  ///< by tensor and first element
};

/// Element `first` of the tensor of `piece`, and those behind it.
inline std::byte* element_of(const checkpoint::State& held, const checkpoint::PieceView& piece,
                             std::int64_t first) {
  const std::int64_t bytes = bytes_of(held.tensors[piece.tensor].type);
  return static_cast<std::byte*>(piece.data) + (first - piece.first) * bytes;
}

/// The pieces `parts`, each a part of one of `held`, in the memory of `held`.
inline checkpoint::State parts_in(const checkpoint::State& held,
                                  const std::vector<checkpoint::PieceView>& parts) {
  const PieceIndex index(held);
  checkpoint::State out{held.tensors, parts};
  for (checkpoint::PieceView& part : out.pieces)
    if (part.count > 0) part.data = element_of(held, held.pieces[index.piece(part.span())], part.first);
  return out;
}

}  // namespace holdfast::train

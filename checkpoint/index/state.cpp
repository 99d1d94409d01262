#include "checkpoint/index/state.hpp"

#include <cstdio>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {

std::vector<std::int64_t> shape_of(const LogicalTensor& tensor) {
  const bool is_vector = (tensor.rows == 1 && tensor.name.ends_with("norm.weight")) ||
                         (tensor.cols == 1 && tensor.name.ends_with(".bias"));
  if (is_vector) return {tensor.elements()};
  return {tensor.rows, tensor.cols};
}

std::vector<std::uint64_t> partial_digests(const State& state) {
  std::vector<std::uint64_t> digests(state.tensors.size(), 0);
  for (const PieceView& piece : state.pieces)
    digests.at(piece.tensor) += digest_part(static_cast<std::uint64_t>(piece.first), piece.data,
                                            state.tensors[piece.tensor].type, piece.count);
  return digests;
}

std::uint64_t state_digest(std::span<const LogicalTensor> tensors, std::span<const std::uint64_t> digests) {
  expects(tensors.size() == digests.size(), "one digest per tensor");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    sum = combine_digests(sum, hash_name(tensors[i].name.data(), tensors[i].name.size()), digests[i]);
  return sum;
}

std::string digest_text(std::uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

}  // namespace holdfast::checkpoint

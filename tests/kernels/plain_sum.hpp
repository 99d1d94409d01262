#pragma once
// The sum of terms from left to right, as an ordered sum.
#include <vector>

#include "src/kernels/kernels.hpp"

namespace holdfast {

/// sum (+)= terms[0] + terms[1] + ...; `first`: terms[0] is copied.
inline void plain_sum(kernels::Kernels& kernels, tensor::Stream& stream, float* sum,
                      std::span<const void* const> terms, tensor::DType type, std::int64_t count,
                      bool first) {
  std::vector<Addition> additions(terms.size());
  if (first) additions.front().begins = true;
  kernels.add_up(stream, {terms, type, additions, {&sum, 1}, first ? 0 : 1, count});
}

}  // namespace holdfast

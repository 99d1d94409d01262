#pragma once
// Initial weights, any part of any tensor, without the rest of it.
#include <cstdint>
#include <span>

#include "src/config/model_shape.hpp"

namespace holdfast::model {

/// Elements [first, first + out.size()) of a logical tensor, a pure function of (seed, tensor name, element
/// index): normal(0, 0.02), output projections (o_proj, down_proj) normal(0, 0.02 / sqrt(2 L)), norm gains 1,
/// biases 0.
void initial_weights(const config::ModelShape& shape, const config::TensorSpec& tensor, std::uint64_t seed,
                     std::int64_t first, std::span<float> out);

}  // namespace holdfast::model

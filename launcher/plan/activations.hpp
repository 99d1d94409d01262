#pragma once
// What a micro-batch keeps between its forward and its backward pass. Pure.
#include <cstdint>

#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// Bytes of all activations and of what their gradients need, without the scratch memory of attention: an
/// estimate, since a backend may lay them out its own way.
std::int64_t activation_bytes(const config::RunConfig& config, const config::ModelShape& model);

}  // namespace holdfast::launcher

#pragma once
// How a model is computed, apart from its shape.
#include "src/config/compute_options.hpp"

namespace holdfast::model {

using Options = config::ComputeOptions;

}  // namespace holdfast::model

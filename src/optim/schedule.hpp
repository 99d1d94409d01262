#pragma once
// The learning rate as a function of the step.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::optim {

/// Of optimizer step `step` in [0, steps): rises linearly, lr * (step + 1) / warmup_steps, then falls along
/// half a cosine from lr to min_lr, which the last step has.
double learning_rate(const config::Optim& settings, std::int64_t step, std::int64_t steps);

}  // namespace holdfast::optim

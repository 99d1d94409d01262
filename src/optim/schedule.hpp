#pragma once
// The learning rate as a function of the step.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::optim {

/// Of optimizer step `step` in [0, steps). First a linear rise, lr * (step + 1) / warmup, which reaches lr in
/// step warmup - 1, with warmup = config::warmup_steps_of(). Then, with x in (0, 1] the part that is over of
/// the steps after the warmup, and 1 in the last step:
///   cosine    min_lr + (lr - min_lr) (1 + cos(pi x)) / 2       (Loshchilov & Hutter 2017, one period)
///   linear    min_lr + (lr - min_lr) (1 - x)
///   constant  lr
///   wsd       lr, then as linear over the last config::decay_steps_of() steps
///                                                              (Hu et al. 2024, MiniCPM; the linear decay:
///                                                              Hägele et al. 2024)
double learning_rate(const config::Optim& settings, std::int64_t step, std::int64_t steps);

}  // namespace holdfast::optim

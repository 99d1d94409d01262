#include "src/optim/schedule.hpp"

#include <cmath>
#include <numbers>

namespace holdfast::optim {

double learning_rate(const config::Optim& settings, std::int64_t step, std::int64_t steps) {
  const std::int64_t warmup = settings.warmup_steps;
  if (step < warmup) return settings.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= steps - 1) return settings.min_lr;
  const double progress = static_cast<double>(step + 1 - warmup) / static_cast<double>(steps - warmup);
  return settings.min_lr +
         0.5 * (settings.lr - settings.min_lr) * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace holdfast::optim

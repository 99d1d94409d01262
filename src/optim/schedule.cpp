#include "src/optim/schedule.hpp"

#include <cmath>
#include <numbers>

namespace holdfast::optim {
namespace {

/// What is over of the steps from `first` on, this one included.
double progress(std::int64_t step, std::int64_t first, std::int64_t steps) {
  return static_cast<double>(step + 1 - first) / static_cast<double>(steps - first);
}

}  // namespace

double learning_rate(const config::Optim& settings, std::int64_t step, std::int64_t steps) {
  using config::Schedule;
  const std::int64_t warmup = config::warmup_steps_of(settings, steps);
  const double lr = settings.lr, least = settings.min_lr;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const std::int64_t decay =
      settings.schedule == Schedule::wsd ? steps - config::decay_steps_of(settings, steps) : warmup;
  if (settings.schedule == Schedule::constant || step < decay) return lr;
  if (step >= steps - 1) return least;
  const double x = progress(step, decay, steps);
  if (settings.schedule == Schedule::cosine)
    return least + 0.5 * (lr - least) * (1 + std::cos(std::numbers::pi * x));
  return least + (lr - least) * (1 - x);
}

}  // namespace holdfast::optim

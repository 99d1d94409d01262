#include "src/optim/best_loss.hpp"

#include <cmath>

namespace holdfast::optim {

BestLoss after(BestLoss best, const config::Eval& settings, std::int64_t step, double loss) {
  const bool first = best.step == 0, finite = std::isfinite(loss);
  ++best.waited;
  if (finite && (first || loss < best.to_beat - settings.min_delta)) {
    best.to_beat = loss;
    best.waited = 0;
  }
  if (finite && (first || loss < best.loss)) {
    best.loss = loss;
    best.step = step;
  }
  return best;
}

bool ends_early(const BestLoss& best, const config::Eval& settings) {
  return settings.patience > 0 && best.waited >= settings.patience;
}

}  // namespace holdfast::optim

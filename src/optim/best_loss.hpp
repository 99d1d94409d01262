#pragma once
// The best held-out loss of a run, and whether a run that gets no better ends early. Pure: every rank, and
// every repetition of the run, comes to the same from the same losses.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::optim {

/// The held-out losses that a run remembers; a part of its state. Trivially copyable.
struct BestLoss {
  double loss = 0;          ///< the smallest one
  std::int64_t step = 0;    ///< in which it was found; 0: none was
  double to_beat = 0;       ///< that has to be beaten by more than eval.min_delta
  std::int64_t waited = 0;  ///< evaluations since it was found
  bool operator==(const BestLoss&) const = default;
};

/// With the loss after `step`; one that is not finite is never better.
BestLoss after(BestLoss best, const config::Eval& settings, std::int64_t step, double loss);

/// The run ends: eval.patience evaluations in a row were no better.
bool ends_early(const BestLoss& best, const config::Eval& settings);

}  // namespace holdfast::optim

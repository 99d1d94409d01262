#pragma once
// When to save and when to stop: decided on logical rank 0, carried out by all ranks (step_orders.hpp). Pure.
#include <cstdint>
#include <optional>
#include <string>

#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"
#include "src/train/common/metrics.hpp"
#include "src/train/common/step_orders.hpp"
#include "src/train/save/interval.hpp"
#include "src/train/save/saver.hpp"

namespace holdfast::train {

class SavePolicy {
 public:
  /// `steps`: of the run. `at`: done so far.
  SavePolicy(const config::Checkpoint& settings, std::int64_t steps, std::int64_t at,
             const FailureRate& rate);

  /// What was asked for: carried out at the end of the next step that changes the state. A request to stop is
  /// not taken back by one that only asks for a save.
  void drain(const control::Drain& drain);
  /// Orders for the step that leads to optimizer step `step`. `busy`: a save would have to wait for the one
  /// before.
  StepOrders orders(std::int64_t step, bool busy);
  /// The save that was ordered for `step` has begun: what asked for it is done.
  void begun(std::int64_t step);
  /// After every step: it took `step_s`, stalls apart. `totals`: the saver's. True when the interval is
  /// another one by a tenth or more than when it was true last.
  bool measured(double step_s, const SaveTotals& totals);

  std::int64_t every() const;  ///< steps between saves now; 0: only when something asks for one
  SavingMetrics in_metrics(const SaveTotals& totals) const;
  const IntervalTuner& tuner() const { return tuner_; }

 private:
  bool due(std::int64_t step) const;

  config::Checkpoint settings_;
  std::int64_t steps_;
  std::int64_t last_;  ///< step of the last save
  std::int64_t skipped_ = 0;
  std::optional<control::Drain> drain_;
  IntervalTuner tuner_;
  std::int64_t said_;  ///< the interval that is known outside
  SaveTotals seen_;    ///< up to here the tuner knows
  bool warm_ = false;  ///< the first step, in which everything is new, is over
};

}  // namespace holdfast::train

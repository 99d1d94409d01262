#pragma once
// A run that lasts as long as whoever breaks it needs, on the fastest machine too: while the run directory
// has the file `hold`, no step takes less than the seconds in it, and the last step is not taken. Nothing
// that reaches the numbers changes. Only where drill.allowed.
//
//   0.1 300    a step takes 0.1 s at least; the last one waits for 300 s at most
//
// The run is let go when the file is gone.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::train {

struct HoldTerms {
  std::chrono::duration<double> least_step{0};   ///< from one step's begin to the next one's
  std::chrono::duration<double> longest_end{0};  ///< wait before the last step
};
/// Of the file's text; what it does not say is 0.
HoldTerms read_hold(std::string_view text);

class StepHold {
 public:
  StepHold(const RunDir& run, std::int64_t last_step);
  ~StepHold();
  StepHold(const StepHold&) = delete;

  /// Before `step` is computed: returns when it may begin. `alive` is called while it waits, several times a
  /// second.
  void before(std::int64_t step, const std::function<void()>& alive);

 private:
  struct Watch;
  /// Nothing: not held. A shared file system that is away lets nobody go.
  std::optional<HoldTerms> terms() const;

  std::shared_ptr<Watch> watch_;
  std::int64_t last_step_;
  std::optional<Clock::time_point> began_;  ///< the step before
};

}  // namespace holdfast::train

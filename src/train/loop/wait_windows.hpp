#pragma once
// How long a rank's bulk operations awaited messages of other nodes, told to its agent at the end of every
// window of steps. All ranks have the same windows, since they end at multiples of steps.
#include <cstdint>
#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::train {

class WaitWindows {
 public:
  /// References outlive it. Where `world` does not know what was awaited, nothing is told.
  WaitWindows(const comm::Communicator& world, control::RankLink& link);
  /// A step is done, at `now` by a steady clock, seconds. A window is told when it was stepped through from
  /// the end of the one before; the first one is not, whose steps take longer than others.
  void stepped(std::int64_t step, double now);

 private:
  void tell(std::int64_t step, double seconds);

  const comm::Communicator& world_;
  control::RankLink& link_;
  std::vector<std::int64_t> before_, now_;  ///< by rank: ns since the start
  std::vector<control::Waits::Of> nodes_;
  std::optional<double> began_;  ///< this window
  int steps_ = 0;                ///< in it
};

}  // namespace holdfast::train

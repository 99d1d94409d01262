#pragma once
// How long a rank's bulk operations awaited messages of other nodes, told to its agent at the end of every
// window of steps. All ranks have the same windows, since they end at multiples of steps.
#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::train {

class WaitWindows {
 public:
  /// References outlive it. Where `world` does not know what was awaited, nothing is told.
  WaitWindows(const comm::Communicator& world, control::RankLink& link);
  /// A step is done, and took `seconds`. A window that was not stepped through from its begin is not told.
  void stepped(std::int64_t step, double seconds);

 private:
  void tell(std::int64_t step);

  const comm::Communicator& world_;
  control::RankLink& link_;
  std::vector<std::int64_t> before_, now_;  ///< by rank: ns since the start
  std::vector<control::Waits::Of> nodes_;
  double seconds_ = 0;
  int steps_ = 0;  ///< of this window
};

}  // namespace holdfast::train

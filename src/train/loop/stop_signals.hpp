#pragma once
// Bare mode: SIGTERM and SIGUSR1 ask for a last save and an end that is to be continued. A second SIGTERM
// ends the process at once, as every other signal does.
#include <signal.h>

#include <array>
#include <optional>

#include "src/control/rank_link.hpp"

namespace holdfast::train {

class StopSignals {
 public:
  /// Takes over both signals of this process. One at a time.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// What came since it was asked last.
  std::optional<control::Drain> take();

 private:
  std::array<struct sigaction, 2> before_{};
};

}  // namespace holdfast::train

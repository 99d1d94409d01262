#pragma once
// The flight records of a node's ranks: read when one of the ranks has not moved for long, and removed when
// their attempt is over.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "launcher/agent/ranks/local_ranks.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Flights {
 public:
  /// `folder`: the scratch folder. A rank without progress may be hung after hang_floor_s, or step_s where
  /// that is less: the leader, which knows the pace, must have its report by then.
  Flights(std::filesystem::path folder, const config::Supervise& limits)
      : folder_(std::move(folder)), limit_(std::min(limits.hang_floor_s, limits.step_s)) {}

  /// Reports on the live ranks of `attempt` for the leader: none while all of them make progress, all of them
  /// once a second when one has made none for more than half of the limit. Ranks that never report (other
  /// programs) are left out.
  std::vector<control::RankFlight> report(const LocalRanks& ranks, int attempt, Clock::time_point now);

 private:
  std::filesystem::path folder_;
  std::chrono::seconds limit_;
  Clock::time_point next_{};
};

/// Removes the flight records of attempts below `attempt` from the scratch folder.
void remove_flight_records(const std::filesystem::path& folder, int attempt);

}  // namespace holdfast::launcher

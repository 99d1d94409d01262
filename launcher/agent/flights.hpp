#pragma once
// The flight records of a node's ranks: read when one of the ranks has not moved for long, and removed when
// their attempt is over.
#include <chrono>
#include <filesystem>
#include <vector>

#include "launcher/agent/local_ranks.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Flights {
 public:
  /// `limit`: a rank that does not move for so long is hung (supervise.step_s).
  Flights(std::filesystem::path run_dir, std::chrono::seconds limit)
      : run_dir_(std::move(run_dir)), limit_(limit) {}

  /// What the leader should hear of the live ranks of `attempt`: nothing while all of them move, everything
  /// once a second when one has not moved for more than half of the limit. Ranks that never speak (other
  /// programs) are left out.
  std::vector<control::RankFlight> report(const LocalRanks& ranks, int attempt, Clock::time_point now);

 private:
  std::filesystem::path run_dir_;
  std::chrono::seconds limit_;
  Clock::time_point next_{};
};

/// Removes the flight records of a run's attempts below `attempt` from this node.
void remove_flight_records(const std::filesystem::path& run_dir, int attempt);

}  // namespace holdfast::launcher

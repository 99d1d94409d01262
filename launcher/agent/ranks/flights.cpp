#include "launcher/agent/ranks/flights.hpp"

#include <algorithm>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::chrono::seconds between_reports{1};

/// It trains, and reports its progress.
bool reports(const LocalRank& rank, int attempt) {
  return rank.attempt == attempt && rank.started && !rank.ended && !rank.finished && rank.heard &&
         (rank.progress.step >= 0 || rank.progress.phase != control::Phase::starting);
}

}  // namespace

std::vector<control::RankFlight> Flights::report(const LocalRanks& ranks, int attempt,
                                                 Clock::time_point now) {
  std::vector<control::RankFlight> out;
  const bool still = std::any_of(ranks.begin(), ranks.end(), [&](const auto& entry) {
    return reports(entry.second, attempt) && 2 * (now - entry.second.moved) > limit_;
  });
  if (!still || now < next_) return out;
  next_ = now + between_reports;
  for (const auto& [number, rank] : ranks) {
    if (!reports(rank, attempt)) continue;
    control::RankFlight flight{number, attempt, 0, {}};
    flight.silent_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - *rank.heard).count();
    if (auto record = flight::read_flight_record(folder_ / flight_record_file(attempt, number));
        record && record->rank == number)
      flight.groups = std::move(record->groups);
    out.push_back(std::move(flight));
  }
  return out;
}

void remove_flight_records(const std::filesystem::path& folder, int attempt) {
  for (const auto& name : files::list(folder)) {
    const auto of = attempt_of_flight_record(name);
    std::error_code ignored;  // files of others stay
    if (of && *of < attempt) std::filesystem::remove(folder / name, ignored);
  }
}

}  // namespace holdfast::launcher

#include "launcher/supervise/hang.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/base/error.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::launcher {
namespace {

/// Ranks that wait for another one stopped at about the same time as it, a heartbeat earlier or later: every
/// rank that has not moved for half of the limit may be the culprit.
const StillRank& by_phase(std::span<const StillRank> ranks, double limit_s) {
  const auto key = [&](const StillRank& r) {
    return std::tuple(r.still_s <= 0.5 * limit_s, r.step, r.phase == control::Phase::collective);
  };
  return *std::min_element(ranks.begin(), ranks.end(),
                           [&](const StillRank& a, const StillRank& b) { return key(a) < key(b); });
}

std::string joined(const std::vector<flight::StuckRank>& stuck) {
  constexpr std::size_t limit = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(limit, stuck.size()); ++i) text += (i > 0 ? "; " : "") + stuck[i].why;
  if (stuck.size() > limit) text += fmt::format("; and {} more", stuck.size() - limit);
  return text;
}

}  // namespace

Culprit who_hangs(std::span<const StillRank> ranks, double limit_s) {
  expects(!ranks.empty(), "at least one rank hangs");
  std::vector<flight::FlightRecord> records;
  std::vector<flight::StuckRank> silent;
  for (const StillRank& r : ranks) {
    if (!r.flight && !r.unheard) continue;
    const double silent_s = r.flight ? 1e-3 * static_cast<double>(r.flight->silent_ms) : r.still_s;
    if (silent_s > 0.5 * limit_s)
      silent.push_back(
          {r.rank, fmt::format("the process of rank {} has not been heard for {:.1f} s", r.rank, silent_s)});
    if (!r.flight) continue;
    records.push_back({r.rank, 0, 0, r.flight->groups, {}});
  }
  std::vector<flight::StuckRank> stuck = flight::stuck_ranks(records);
  if (!silent.empty()) {
    // A stopped process may have entered the collective that the others wait in: then its record does not
    // show that it is the culprit.
    const int first = silent.front().rank;
    std::erase_if(stuck, [&](const flight::StuckRank& s) {
      return std::none_of(silent.begin(), silent.end(), [&](const auto& q) { return q.rank == s.rank; });
    });
    stuck.insert(stuck.begin(), silent.begin(), silent.end());
    return {first, joined(stuck)};
  }
  if (!stuck.empty()) return {stuck.front().rank, joined(stuck)};
  return {by_phase(ranks, limit_s).rank, ""};
}

}  // namespace holdfast::launcher

#include "launcher/supervise/outside_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

namespace holdfast::launcher {
namespace {

constexpr double look_life_s = 5;     // how long a look counts; one comes every second
constexpr std::size_t live_part = 8;  // one rank of so many shows that the run lives
constexpr double idle_share = 0.05;   // of a core: less is idle, ...
constexpr double busy_share = 0.5;    // ... and more is spinning
constexpr double stale_part = 0.8;    // of a recorded silence, over the one that is known
constexpr double earlier_s = 3;       // so much before all others a rank fell silent
constexpr double longest_start_s = 3600;
constexpr double alike_part = 0.25;       // two times are the same up to this part of the longer one
constexpr double between_counts_s = 0.2;  // each asks all ranks, and thousands may report in a second

}  // namespace

OutsideWatch::OutsideWatch(const config::Supervise& limits,
                           const std::map<std::string, events::KnownPace>& known, double unjudged_s)
    : limits_(limits) {
  if (unjudged_s > 0) {
    doubt_ = Doubt{.past_s = unjudged_s, .again = true};
    return;
  }
  if (const auto recorded = known.find(recorded_as); recorded != known.end()) {
    longest_ = recorded->second.longest;
    known_ = true;
  }
}

void OutsideWatch::new_attempt() {
  ranks_.clear();
  first_life_ = last_life_ = counted_at_ = -1;
}

/// When the eighth part of the ranks that showed life last had shown it; < 0: they have not yet.
double OutsideWatch::last_life() const {
  std::vector<double> at;
  for (const auto& [number, rank] : ranks_) at.push_back(rank.life_at);
  if (at.empty()) return -1;
  const auto nth = at.begin() + static_cast<std::ptrdiff_t>((at.size() - 1) / live_part);
  std::nth_element(at.begin(), nth, at.end(), std::greater<>());
  return *nth;
}

void OutsideWatch::seen(int node, const control::RankSeen& what, double now) {
  Rank& rank = ranks_[what.rank];
  rank.node = node;
  rank.looked_at = now;
  if (!what.sign.empty())
    rank.life_at = std::max(rank.life_at, now - 1e-3 * static_cast<double>(what.still_ms));
  rank.cpu_share = 1e-2 * static_cast<double>(what.cpu_percent);
  rank.state = what.state.empty() ? '?' : what.state.front();
  if (counted_at_ >= 0 && now - counted_at_ < between_counts_s) return;
  counted_at_ = now;
  const double life = last_life();
  if (life < 0) return;
  if (first_life_ < 0) first_life_ = last_life_ = life;
  if (life <= last_life_) return;
  longest_ = std::max(longest_, life - last_life_);
  last_life_ = life;
  const double lived_s = last_life_ - first_life_;
  if (doubt_ && lived_s > doubt_->past_s) doubt_.reset();
  const bool past_doubt = !doubt_ || (!doubt_->again && lived_s > longest_start_s);
  known_ = known_ || (past_doubt && lived_s >= 2.0 * limits_.hang_outside_s);
}

double OutsideWatch::bound_s(double silence_s) const {
  return std::max(static_cast<double>(limits_.hang_outside_s), limits_.hang_factor * silence_s);
}

std::optional<OutsideWatch::Silence> OutsideWatch::overdue(int world, double now) const {
  if (limits_.hang_outside_s <= 0 || !known_ || last_life_ < 0) return std::nullopt;
  Silence out;
  out.still_s = now - last_life_;
  out.bound_s = bound_s(std::max(longest_, doubt_ ? doubt_->silence_s : 0));
  if (out.still_s <= out.bound_s || static_cast<int>(ranks_.size()) < world) return std::nullopt;
  const bool all_seen = std::all_of(ranks_.begin(), ranks_.end(), [now](const auto& entry) {
    return now - entry.second.looked_at <= look_life_s;
  });
  if (!all_seen) return std::nullopt;
  std::tie(out.rank, out.why) = culprit();
  out.named = out.rank >= 0;
  if (!out.named) out.rank = ranks_.begin()->first;
  return out;
}

/// In this order: a rank with a stopped process; one that waits in the kernel; one that cannot be looked at;
/// the one that uses no processor time while the others spin; the one that fell silent before all others.
/// What most ranks show, on several nodes, has a cause that they share, such as storage.
std::pair<int, std::string> OutsideWatch::culprit() const {
  std::string shared;
  for (const auto& [state, says] : {std::pair('T', "is stopped"),
                                    {'t', "is stopped by a debugger"},
                                    {'D', "waits in the kernel"},
                                    {control::RankSeen::look_hangs, "cannot be looked at"}}) {
    std::vector<int> who;
    std::set<int> nodes;
    for (const auto& [number, rank] : ranks_)
      if (rank.state == state) {
        who.push_back(number);
        nodes.insert(rank.node);
      }
    if (who.empty()) continue;
    if (who.size() < ranks_.size() && (nodes.size() == 1 || 2 * who.size() < ranks_.size()))
      return {who.front(), fmt::format("a process of rank {} {}", who.front(), says)};
    if (shared.empty())
      shared = fmt::format("{} of {} ranks have a process that {}", who.size(), ranks_.size(), says);
  }
  std::vector<std::pair<double, int>> by_life;
  std::vector<int> idle;
  std::size_t busy = 0;
  for (const auto& [number, rank] : ranks_) {
    by_life.emplace_back(rank.life_at, number);
    if (rank.cpu_share < idle_share) idle.push_back(number);
    busy += rank.cpu_share > busy_share ? 1 : 0;
  }
  if (idle.size() == 1 && busy > 0 && busy + 1 == ranks_.size())
    return {idle.front(), fmt::format("rank {} uses no processor time while the others spin", idle.front())};
  std::sort(by_life.begin(), by_life.end());
  if (by_life.size() > 1 && by_life[0].first >= 0)
    if (const double before = by_life[1].first - by_life[0].first; before > earlier_s)
      return {by_life[0].second,
              fmt::format("rank {} fell silent {:.3g} s before the others", by_life[0].second, before)};
  return {-1, shared};
}

void OutsideWatch::taken_for_hung(const Silence& silence) {
  const char state = ranks_.at(silence.rank).state;
  if (silence.named && (state == 'T' || state == 't')) return;  // a program that is well stops nobody
  const double usual_s = bound_s(longest_), lived_s = last_life_ - first_life_;
  const auto none = [this](auto holds) {
    return std::none_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return holds(rank.second); });
  };
  const bool open = !silence.named && silence.why.empty() && lived_s <= longest_start_s &&
                    none([](const Rank& rank) { return rank.cpu_share < idle_share; });
  const bool again = open && doubt_ && doubt_->open &&
                     std::abs(lived_s - doubt_->lived_s) <= alike_part * std::max(lived_s, doubt_->lived_s);
  doubt_ = Doubt{usual_s, lived_s + usual_s, lived_s, open, again};
  const double now = last_life_ + silence.still_s;
  known_ = !again && none([now](const Rank& rank) { return now - rank.life_at <= look_life_s; });
}

std::optional<double> OutsideWatch::known() const { return known_ ? std::optional(longest_) : std::nullopt; }

bool OutsideWatch::is_news(const std::map<std::string, events::KnownPace>& recorded) const {
  if (!known_) return false;
  const auto then = recorded.find(recorded_as);
  const double floor = limits_.hang_outside_s / limits_.hang_factor;  // less makes no difference
  return then == recorded.end() ||
         std::max(then->second.longest, floor) < stale_part * std::max(longest_, floor);
}

void OutsideWatch::extend_deadlines(double seconds, double now) {
  for (double* since : {&first_life_, &last_life_})
    if (*since >= 0) *since = std::min(*since + seconds, now);
  for (auto& [number, rank] : ranks_) {
    if (rank.life_at >= 0) rank.life_at = std::min(rank.life_at + seconds, now);
    rank.looked_at = std::min(rank.looked_at + seconds, now);
  }
}

}  // namespace holdfast::launcher

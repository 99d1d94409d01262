// Reports of agents change the Rank entries; the supervisor asks for findings at its ticks. heartbeat()
// compares what an agent says with what is known, and returns for each rank how it has moved: which phase it
// has left after how long, and how long a step took. Reports on another attempt, or on a rank that is not on
// that node, change nothing. A step never becomes smaller. An agent that was replaced reports its ranks
// without progress at first, which only shows that they live.
//
// Each rank has the times since which it is in its phase and at its step, and when its agent named it last.
// watch(), adopt() and hold() let some or all of these begin anew; extend_deadlines() moves them by a time in
// which nothing was decided, but never into the future. vanished() finds a rank that has not ended with 0 and
// that its agent, though heard, has not named for 15 s.
#include "launcher/supervise/attempt_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace holdfast::launcher {
namespace {

// An agent that was replaced knows its ranks again after this time, or they are gone.
constexpr double unnamed_limit_s = 15;
constexpr double flight_life_s = 3;  // how long a report counts; one comes every second

}  // namespace

AttemptWatch::AttemptWatch(int ranks_per_node, const config::RankPromises& promises, double heartbeat_s,
                           std::vector<int> placement)
    : ranks_per_node_(ranks_per_node), promises_(promises), heartbeat_s_(heartbeat_s) {
  begin(std::move(placement));
}

void AttemptWatch::begin(std::vector<int> placement) {
  placement_ = std::move(placement);
  ranks_.assign(placement_.size() * ranks_per_node_, Rank{});
  newest_step_ = -1;
  all_took_part_ = LifeSigns::never;
}

int AttemptWatch::slot_of(int node) const {
  const auto it = std::find(placement_.begin(), placement_.end(), node);
  return it == placement_.end() ? -1 : static_cast<int>(it - placement_.begin());
}

std::vector<RankMove> AttemptWatch::heartbeat(int node, const control::Heartbeat& what, double now) {
  std::vector<RankMove> moves;
  for (const auto& seen : what.ranks) {
    if (seen.attempt != what.attempt || !has_on(seen.rank, node)) continue;
    auto& rank = ranks_[seen.rank];
    if (rank.step >= 0 && seen.step < 0 && seen.phase == control::Phase::starting) {
      rank.seen_at = now;  // its agent was replaced and has not heard from it yet: no progress
      continue;
    }
    RankMove move{.rank = seen.rank, .step = seen.step};
    if (seen.step > rank.step || seen.phase == control::Phase::paused) {
      if (seen.step > rank.step && rank.step >= 0) move.step_s = now - rank.stepped_at;
      rank.stepped_at = now;
    }
    if (!rank.started || rank.step != seen.step || rank.phase != seen.phase || rank.moves != seen.moves) {
      move.left = rank.phase;
      if (rank.started) move.left_s = now - rank.moved_at;
      rank.moved_at = now;
    }
    move.compute_s = 1e-6 * static_cast<double>(seen.compute_us);
    rank.started = true;
    rank.step = std::max(rank.step, seen.step);
    rank.phase = seen.phase;
    rank.moves = seen.moves;
    rank.seen_at = now;
    rank.reported = rank.reported || rank.placed() || seen.moves > 0;
    ranks_came_to(rank.step, now);
    moves.push_back(move);
  }
  return moves;
}

/// A step needs all ranks, and each of them began it after the step before was done somewhere. What a
/// heartbeat says may be as old as the time between two.
void AttemptWatch::ranks_came_to(std::int64_t step, double now) {
  if (!promises_.steps_together || step <= newest_step_) return;
  if (newest_step_ >= 0) all_took_part_ = newest_step_at_ - heartbeat_s_;
  newest_step_ = step;
  newest_step_at_ = now;
}

void AttemptWatch::ended(int rank, bool well) {
  ranks_[rank].ended = true;
  if (well) ranks_[rank].exited_well = true;
}

bool AttemptWatch::finished(int rank) { return !std::exchange(ranks_[rank].finished, true); }

void AttemptWatch::flight(const control::RankFlight& what, double now) {
  ranks_[what.rank].flight = what;
  ranks_[what.rank].flight_at = now;
}

void AttemptWatch::saved(std::int64_t step) {
  for (auto& rank : ranks_) rank.step = std::max(rank.step, step);
}

void AttemptWatch::watch(double now) {
  for (auto& rank : ranks_) rank.moved_at = rank.stepped_at = rank.seen_at = now;
}

void AttemptWatch::adopt(double now) {
  for (auto& rank : ranks_) {
    if (rank.moved_at <= 0) rank.moved_at = now;  // else it has not moved since its first report
    rank.stepped_at = rank.seen_at = now;
  }
}

void AttemptWatch::hold(double now) {
  for (auto& rank : ranks_) rank.moved_at = now;
}

void AttemptWatch::extend_deadlines(double seconds, double now) {
  const auto later = [&](double& since) { since = std::min(since + seconds, now); };  // not into the future
  for (auto& rank : ranks_) {
    later(rank.moved_at), later(rank.stepped_at);
    later(rank.seen_at), later(rank.flight_at);
  }
}

std::optional<AttemptWatch::Missing> AttemptWatch::missing() const {
  Missing out;
  for (int r = 0; r < world(); ++r) {
    if (ranks_[r].started) continue;
    if (out.first < 0) out.first = r;
    out.one_node = out.one_node && node_of(r) == node_of(out.first);
    ++out.count;
  }
  return out.count > 0 ? std::optional(out) : std::nullopt;
}

bool AttemptWatch::whole() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.started || r.exited_well; });
}

bool AttemptWatch::all_exited_well() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.exited_well; });
}

SlotProgress AttemptWatch::progress_of(int slot) const {
  SlotProgress out;
  for (int local = 0; local < ranks_per_node_; ++local) {
    const Rank& rank = ranks_[slot * ranks_per_node_ + local];
    out.step = local == 0 ? rank.step : std::min(out.step, rank.step);
    ++out.phases[rank.finished || rank.exited_well ? "done"
                 : rank.ended                      ? "ended"
                                                   : control::name_of(rank.phase)];
  }
  return out;
}

int AttemptWatch::unended() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.ended; }));
}

int AttemptWatch::sigterms() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.sent_sigterm; }));
}

bool AttemptWatch::others_ended(int rank) const {
  for (int r = 0; r < world(); ++r)
    if (r != rank && ranks_[r].ended) return true;
  return false;
}

bool AttemptWatch::any_holds() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& r) { return r.phase == control::Phase::paused; });
}

bool AttemptWatch::any_saves() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& r) { return !r.ended && r.phase == control::Phase::checkpoint; });
}

bool AttemptWatch::any_finished() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.finished; });
}

std::optional<RankEnd> AttemptWatch::vanished(const std::vector<bool>& heard_now, double now) const {
  for (int r = 0; r < world(); ++r)
    if (!ranks_[r].exited_well && heard_now[node_of(r)] && now - ranks_[r].seen_at > unnamed_limit_s)
      return RankEnd{r, node_of(r), -1,
                     fmt::format("its agent has not reported it for {} s", unnamed_limit_s), now};
  return std::nullopt;
}

std::int64_t AttemptWatch::highest_step() const {
  std::int64_t highest = -1;
  for (const auto& rank : ranks_) highest = std::max(highest, rank.step);
  return highest;
}

bool AttemptWatch::reports() const {
  return promises_.always_reports() ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.reported; });
}

bool AttemptWatch::follows() const {
  return promises_.always_reports() ||
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.reported; });
}

std::vector<StillRank> AttemptWatch::still_ranks(bool restored, double now) const {
  std::vector<StillRank> still;
  std::int64_t behind = std::numeric_limits<std::int64_t>::max();
  for (int r = 0; r < world(); ++r) {
    const auto& rank = ranks_[r];
    if (!rank.trains() || !rank.placed()) continue;
    // Agents report once a second while their ranks make no progress; an older report is about an earlier
    // delay.
    const bool current = rank.flight && now - rank.flight_at <= flight_life_s;
    still.push_back({r, rank.step, rank.phase, now - rank.moved_at, current ? &*rank.flight : nullptr});
    behind = std::min(behind, rank.step);
  }
  if (still.empty() || !restored) return still;
  // A stopped rank sends nothing to an agent that was replaced, so its step is not known: it is assumed to be
  // where the last of the others is. Before the state is loaded, a rank may not have reported yet.
  for (int r = 0; r < world(); ++r) {
    const auto& rank = ranks_[r];
    if (rank.trains() && !rank.placed())
      still.push_back({r, behind, control::Phase::forward, now - rank.moved_at, nullptr, true});
  }
  return still;
}

}  // namespace holdfast::launcher

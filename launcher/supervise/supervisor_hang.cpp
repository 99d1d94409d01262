// Ranks that are alive and make no progress, and ranks that are slower than the others.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "launcher/supervise/hang.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

constexpr double flight_life_s = 3;  // how long a report counts; one comes every second
constexpr double stacks_limit_s = 2;
constexpr double between_paces_s = 10;                    // between two records of the pace
constexpr std::size_t stack_lines = 6, stack_line = 160;  // recorded as evidence; a file has all

/// The first lines of a stack, each as one piece of evidence.
std::vector<std::string> first_lines(const std::string& text) {
  std::vector<std::string> out;
  for (const auto line : lines_of(text))
    if (out.size() < stack_lines) out.emplace_back(line.substr(0, stack_line));
  return out;
}

}  // namespace

/// Finds out whether no rank makes progress, and which one holds the others up.
void Supervisor::check_hang() {
  const auto here = [](const RankNow& r) { return r.started && !r.finished && !r.exited_well; };
  const auto speaks = [](const RankNow& r) { return r.step >= 0 || r.phase != control::Phase::starting; };
  // Ranks that hold on order, and those that wait for them, are not hung; when they go on, their time starts
  // anew.
  if (state_.hold_ranks() && std::any_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) {
        return r.phase == control::Phase::paused;
      })) {
    for (auto& rank : ranks_) rank.moved_at = now_;
    return hang_.reset();
  }
  std::vector<StillRank> still;
  std::int64_t behind = std::numeric_limits<std::int64_t>::max();
  for (int r = 0; r < world(); ++r) {
    const auto& rank = ranks_[r];
    if (!here(rank) || !speaks(rank)) continue;
    // Agents report once a second while their ranks make no progress; an older report is about an earlier
    // delay.
    const bool current = rank.flight && now_ - rank.flight_at <= flight_life_s;
    still.push_back({r, rank.step, rank.phase, now_ - rank.moved_at, current ? &*rank.flight : nullptr});
    behind = std::min(behind, rank.step);
  }
  if (still.empty()) return hang_.reset();
  // A stopped rank sends nothing to an agent that was replaced, so its step is not known: it is assumed to be
  // where the last of the others is. Before the state is loaded, a rank may not have reported yet.
  for (int r = 0; r < world() && state_.attempts.back().restored; ++r) {
    const auto& rank = ranks_[r];
    if (here(rank) && !speaks(rank))
      still.push_back({r, behind, control::Phase::forward, now_ - rank.moved_at, nullptr, true});
  }
  const auto limit = overdue(still, pace_);
  if (!limit) return hang_.reset();
  // What the ranks of a silent node do is not known. It will be heard again, or be lost within
  // node_silence_ms.
  if (!std::all_of(placement_.begin(), placement_.end(), [this](int n) { return fresh(n); })) return;
  const Culprit culprit = who_hangs(still, *limit);
  const int node = node_of_rank(culprit.rank);
  if (!hang_ || hang_->rank != culprit.rank) {
    hang_ = Hang{culprit.rank, hang_ ? hang_->since : now_, ""};
    actions_.push_back(DumpRank{node, culprit.rank});
  }
  if (hang_->stacks.empty() && now_ - hang_->since < stacks_limit_s) return;
  Failure failure;
  failure.kind = Failure::Kind::rank_hung;
  failure.node = node;
  failure.rank = culprit.rank;
  failure.evidence = culprit.why.empty() ? fmt::format("rank {} on {} has shown no progress for {:.3g} s",
                                                       culprit.rank, name(node), *limit)
                                         : fmt::format("rank {} on {} holds up the others for {:.3g} s: {}",
                                                       culprit.rank, name(node), *limit, culprit.why);
  failure.silent_s = now_ - ranks_[culprit.rank].moved_at;
  failure.seen = first_lines(hang_->stacks);
  fail(std::move(failure));
}

/// For the next leader, which must find a hang that began before its term.
void Supervisor::record_pace() {
  if (now_ - pace_at_ < between_paces_s || !pace_.is_news(state_.pace)) return;
  pace_at_ = now_;
  record(events::PaceKnown{attempt(), pace_.known()});
}

void Supervisor::stacks(int node, const control::Stacks& what) {
  if (!hang_ || what.attempt != attempt() || what.rank != hang_->rank || node_of_rank(what.rank) != node)
    return;
  hang_->stacks = what.text;
}

void Supervisor::check_stragglers() {
  while (const auto slow = stragglers_.take()) {
    const int node = node_of_rank(slow->rank);
    const std::string evidence = fmt::format("rank {} on {} computes {:.2f} times as long as the median rank",
                                             slow->rank, name(node), slow->ratio);
    record(events::Straggler{attempt(), slow->rank, name(node), slow->ratio, evidence});
    if (limits_.on_straggler == config::OnStraggler::substitute && has_spare_for(node)) evict(node, evidence);
    if (stage_ != Stage::running) return;
  }
}

}  // namespace holdfast::launcher

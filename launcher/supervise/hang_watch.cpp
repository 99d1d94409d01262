#include "launcher/supervise/hang_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

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

Failure failure_of(const Hang& hang, int node, const std::string& name) {
  Failure failure;
  failure.kind = Failure::Kind::rank_hung;
  failure.node = node;
  failure.rank = hang.rank;
  failure.evidence = hang.why.empty() ? fmt::format("rank {} on {} has shown no progress for {:.3g} s",
                                                    hang.rank, name, hang.overdue_s)
                                      : fmt::format("rank {} on {} holds up the others for {:.3g} s: {}",
                                                    hang.rank, name, hang.overdue_s, hang.why);
  failure.silent_s = hang.still_s;
  failure.phase = hang.phase;
  failure.seen = first_lines(hang.stacks);
  return failure;
}

HangWatch::HangWatch(const config::Supervise& limits, int world,
                     const std::map<std::string, events::KnownPace>& known, const RankWork& work)
    : limits_(limits), pace_(limits, world, work) {
  pace_.recall(known);
}

void HangWatch::moved(const RankMove& move) {
  if (move.step_s) pace_.stepped(*move.step_s);
  if (move.left_s) pace_.left(move.left, *move.left_s);
}

void HangWatch::new_attempt() {
  pace_.new_attempt();
  hang_.reset();
}

HangWatch::Finding HangWatch::check(const std::vector<StillRank>& ranks, bool all_heard, double now) {
  const auto limit = overdue(ranks, pace_);
  if (!limit) return hang_.reset(), Finding{};
  if (!all_heard) return {};
  const Culprit culprit = who_hangs(ranks, *limit);
  Finding found;
  if (!hang_ || hang_->rank != culprit.rank) {
    hang_ = Hang{culprit.rank, 0, 0, "", hang_ ? hang_->since : now, ""};
    found.dump = culprit.rank;
  }
  hang_->overdue_s = *limit;
  const auto rank =
      std::find_if(ranks.begin(), ranks.end(), [&](const StillRank& r) { return r.rank == culprit.rank; });
  hang_->still_s = rank->still_s;
  hang_->phase = rank->phase;
  hang_->why = culprit.why;
  if (!hang_->stacks.empty() || now - hang_->since >= stacks_limit_s) found.hang = *hang_;
  return found;
}

void HangWatch::stacks(int rank, const std::string& text) {
  if (hang_ && hang_->rank == rank) hang_->stacks = text;
}

void HangWatch::extend_deadlines(double seconds, double now) {
  if (hang_) hang_->since = std::min(hang_->since + seconds, now);
}

bool HangWatch::pace_is_news(const std::map<std::string, events::KnownPace>& recorded, double now) const {
  return now - pace_at_ >= between_paces_s && pace_.is_news(recorded);
}

std::map<std::string, events::KnownPace> HangWatch::known_pace(double now) {
  pace_at_ = now;
  return pace_.known();
}

}  // namespace holdfast::launcher

#include "launcher/supervise/hang_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/text.hpp"
#include "src/base/units.hpp"

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
  if (hang.named) {
    failure.node = node;
    failure.rank = hang.rank;
  }
  if (hang.from_outside)
    failure.evidence = fmt::format(
        "no rank has printed, touched a heartbeat file, or moved bytes over files, network or links for "
        "{:.3g} s "
        "({:.3g} s are allowed){}{}{}",
        hang.still_s, hang.overdue_s, hang.why.empty() ? "" : ": ", hang.why,
        hang.unjudged_s > 0
            ? fmt::format(", as in the attempt before. From now on no silence ends an attempt before it has "
                          "shown signs of life for {}",
                          duration_text(hang.unjudged_s))
            : "");
  else if (hang.why.empty())
    failure.evidence =
        fmt::format("rank {} on {} has shown no progress for {:.3g} s", hang.rank, name, hang.overdue_s);
  else
    failure.evidence = fmt::format("rank {} on {} holds up the others for {:.3g} s: {}", hang.rank, name,
                                   hang.overdue_s, hang.why);
  failure.unjudged_s = hang.unjudged_s;
  if (hang.unjudged_s > 0)
    failure.advice =
        "If the program works without a sign that can be seen from outside, let it touch the file "
        "$HOLDFAST_HEARTBEAT_FILE once a step, or use the client: then its hangs are found";
  failure.silent_s = hang.still_s;
  failure.phase = hang.phase;
  failure.seen = first_lines(hang.stacks);
  if (!hang.named && !failure.seen.empty())
    failure.seen.insert(failure.seen.begin(), fmt::format("rank {} on {} as one of all:", hang.rank, name));
  return failure;
}

HangWatch::HangWatch(const config::Supervise& limits, int world,
                     const std::map<std::string, events::KnownPace>& known, const RankWork& work,
                     double unjudged_s)
    : limits_(limits), pace_(limits, world, work), outside_(limits, known, unjudged_s) {
  pace_.recall(known);
}

void HangWatch::moved(const RankMove& move) {
  if (move.step_s) pace_.stepped(*move.step_s);
  if (move.left_s) pace_.left(move.left, *move.left_s);
}

void HangWatch::new_attempt() {
  pace_.new_attempt();
  outside_.new_attempt();
  hang_.reset();
}

HangWatch::Finding HangWatch::check(const std::vector<StillRank>& ranks, bool all_heard, double now) {
  const auto limit = overdue(ranks, pace_);
  if (!limit) return hang_.reset(), Finding{};
  if (!all_heard) return {};
  const Culprit culprit = who_hangs(ranks, *limit);
  const auto rank =
      std::find_if(ranks.begin(), ranks.end(), [&](const StillRank& r) { return r.rank == culprit.rank; });
  return found({.rank = culprit.rank,
                .overdue_s = *limit,
                .still_s = rank->still_s,
                .why = culprit.why,
                .phase = rank->phase},
               now);
}

HangWatch::Finding HangWatch::check_outside(int world, bool all_heard, double now) {
  const auto silence = outside_.overdue(world, now);
  if (!silence) return hang_.reset(), Finding{};
  if (!all_heard) return {};
  Finding finding = found({.rank = silence->rank,
                           .overdue_s = silence->bound_s,
                           .still_s = silence->still_s,
                           .why = silence->why,
                           .from_outside = true,
                           .named = silence->named},
                          now);
  if (!finding.hang) return finding;
  outside_.taken_for_hung(*silence);
  finding.hang->unjudged_s = outside_.unjudged_s();
  return finding;
}

/// Its stacks are asked for first.
HangWatch::Finding HangWatch::found(const Hang& what, double now) {
  Finding finding;
  const bool same = hang_ && hang_->rank == what.rank;
  if (!same) finding.dump = what.rank;
  const double since = hang_ ? hang_->since : now;
  const std::string stacks = same ? hang_->stacks : "";
  hang_ = what;
  hang_->since = since;
  hang_->stacks = stacks;
  if (!stacks.empty() || now - since >= stacks_limit_s) finding.hang = *hang_;
  return finding;
}

void HangWatch::stacks(int rank, const std::string& text) {
  if (hang_ && hang_->rank == rank) hang_->stacks = text;
}

void HangWatch::extend_deadlines(double seconds, double now) {
  if (hang_) hang_->since = std::min(hang_->since + seconds, now);
  outside_.extend_deadlines(seconds, now);
}

bool HangWatch::pace_is_news(const std::map<std::string, events::KnownPace>& recorded, double now) const {
  return now - pace_at_ >= between_paces_s && (pace_.is_news(recorded) || outside_.is_news(recorded));
}

std::map<std::string, events::KnownPace> HangWatch::known_pace(double now) {
  pace_at_ = now;
  auto known = pace_.known();
  if (const auto outside = outside_.known()) known[OutsideWatch::recorded_as] = {*outside, *outside};
  return known;
}

}  // namespace holdfast::launcher

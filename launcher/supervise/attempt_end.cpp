#include "launcher/supervise/attempt_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace holdfast::launcher {
namespace {

using Kind = Failure::Kind;

// An attempt that has lived so long is not a setback, even of a program that does not report progress.
constexpr double settled_s = 600;
constexpr std::size_t seen_signs = 5;  // recorded beside a failure that needs no diagnosis

}  // namespace

events::AttemptEnded end_by(const Failure& failure, const EndFacts& facts) {
  const AttemptRecord& live = facts.state.attempts.back();
  const bool setback =
      by_infrastructure(failure) && !live.first_step_at && facts.unix_now - live.planned_at < settled_s;
  // Nodes of one switch fall silent one after the other. The last ones end the attempt that followed the loss
  // of the first ones, before it has really begun.
  const bool untried = failure.kind == Kind::node_lost && !facts.begun;
  const bool ordered = failure.kind == Kind::evicted;
  std::vector<std::string> evidence = {failure.evidence};
  evidence.insert(evidence.end(), failure.seen.begin(), failure.seen.end());
  for (auto sign = facts.signs.begin(); sign != facts.signs.end() && evidence.size() <= seen_signs; ++sign)
    evidence.push_back(*sign);
  return {.attempt = live.number,
          .step = facts.step,
          .cause = failure.cause.empty() ? name_of(failure.kind) : failure.cause,
          .node = failure.node < 0 ? "" : facts.roster.nodes[failure.node].name,
          .rank = failure.rank,
          .healthy = on_healthy_nodes(failure),
          .blamed = blames_node(failure),
          .blame = name_of(blame_of(failure)),
          .counts = !untried && !setback && !ordered && failure.kind != Kind::leader_changed,
          .untried = untried,
          .restart = !untried && !ordered,
          .setback = setback,
          .detected_s = facts.reported_s.value_or(failure.silent_s),
          .decided_s = facts.decided_s,
          .evidence = std::move(evidence),
          .advice = failure.advice,
          .gpu = failure.gpu};
}

events::AttemptEnded end_with_run(const std::string& status, int attempt, std::int64_t step) {
  return {.attempt = attempt, .step = step, .cause = status, .counts = false};
}

void assume_progress(events::AttemptEnded& ended, const AttemptRecord& live, double unix_now,
                     double assumed_progress_s) {
  ended.reports = false;
  ended.ran_s = live.launched_s ? unix_now - live.planned_at - *live.launched_s : 0;
  ended.progress_assumed = live.launched_s && ended.ran_s >= assumed_progress_s;
}

std::vector<Event> nodes_after(const Failure& failure, const RunState& state, const Roster& roster,
                               int max_node_failures) {
  std::vector<Event> out;
  std::set<std::string> evicted = state.evicted;
  const auto evict = [&](const std::string& node, const std::string& why) {
    if (evicted.insert(node).second) out.push_back(events::NodeEvicted{node, why});
  };
  for (const int n : failure.ended_nodes) evict(roster.nodes[n].name, failure.evidence);
  const std::string culprit = failure.node < 0 ? "" : roster.nodes[failure.node].name;
  if (failure.ends_node && failure.node >= 0) evict(culprit, failure.evidence);
  for (const auto& [node, why] : state.evicting) evict(node, why);
  if (failure.node < 0 || state.lost.contains(culprit) || evicted.contains(culprit) ||
      state.suspects.contains(culprit))
    return out;
  const auto failures = state.failures.find(culprit);
  const bool often = failures != state.failures.end() && failures->second >= max_node_failures;
  if (failure.kind == Kind::start_failed || failure.blame == Blame::node || often)
    out.push_back(
        events::NodeSuspected{culprit, often ? fmt::format("{} attempts have ended by {}; the last: {}",
                                                           failures->second, culprit, failure.evidence)
                                             : failure.evidence});
  return out;
}

}  // namespace holdfast::launcher

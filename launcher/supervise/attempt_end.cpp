#include "launcher/supervise/attempt_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "launcher/supervise/budget_table.hpp"

namespace holdfast::launcher {
namespace {

using Kind = Failure::Kind;

constexpr std::size_t seen_signs = 5;  // recorded beside a failure that needs no diagnosis

/// A node that is silent gives no sign that would have its own.
std::string advice_of(const Failure& failure) {
  if (!failure.advice.empty() || failure.kind != Kind::node_lost) return failure.advice;
  return "find out why the node is gone, from its console or SLURM, before it gets jobs again";
}

}  // namespace

events::AttemptEnded end_by(const Failure& failure, const EndFacts& facts) {
  const AttemptRecord& live = facts.state.attempts.back();
  std::vector<std::string> evidence = {failure.evidence};
  evidence.insert(evidence.end(), failure.seen.begin(), failure.seen.end());
  for (auto sign = facts.signs.begin(); sign != facts.signs.end() && evidence.size() <= seen_signs; ++sign)
    evidence.push_back(*sign);
  return {.attempt = live.number,
          .step = facts.step,
          .cause = failure.cause.empty() ? name_of(failure.kind) : failure.cause,
          .node = failure.node < 0 ? "" : facts.roster.nodes[failure.node].name,
          .rank = failure.rank,
          .status = failure.status,
          .kind = name_of(cause_kind_of(failure)),
          .blamed = blames_node(failure),
          .blame = name_of(blame_of(failure)),
          .detected_s = facts.reported_s.value_or(failure.silent_s),
          .decided_s = facts.decided_s,
          .evidence = std::move(evidence),
          .advice = advice_of(failure),
          .gpu = failure.gpu,
          .xid = failure.xid,
          .xid_rank = failure.xid_rank,
          .unjudged_s = failure.unjudged_s};
}

events::AttemptEnded end_with_run(const std::string& status, int attempt, std::int64_t step) {
  return {.attempt = attempt, .step = step, .cause = status};
}

void assume_progress(events::AttemptEnded& ended, const AttemptRecord& live, double alive_at,
                     double assumed_progress_s) {
  ended.reports = false;
  ended.ran_s = live.launched_s ? std::max(0.0, alive_at - live.planned_at - *live.launched_s) : 0;
  ended.progress_assumed = live.launched_s && ended.ran_s >= assumed_progress_s;
}

void keep_within_evictions(Failure& failure, const RunState& state, const Roster& roster,
                           const config::Supervise& limits) {
  const auto spent = [&](int node) {
    const auto by = failure.ended_by.find(node);
    return by != failure.ended_by.end() &&
           evictions_spent(by->second, roster.nodes[node].name, state, limits);
  };
  if (failure.ends_node && failure.node >= 0 && spent(failure.node)) {
    failure.ends_node = false;
    failure.evictions_spent = true;
    failure.evidence += "; " + why_kept(failure.ended_by.at(failure.node), state);
  }
  std::erase_if(failure.ended_nodes, spent);
}

std::vector<Event> nodes_after(const Failure& failure, const RunState& state, const Roster& roster,
                               const config::Supervise& limits) {
  std::vector<Event> out;
  std::set<std::string> evicted = state.evicted;
  const auto evict = [&](const std::string& node, const std::string& why, const std::string& sign) {
    if (evicted.insert(node).second) out.push_back(events::NodeEvicted{node, why, sign});
  };
  const auto sign_of = [&](int n) {
    const auto by = failure.ended_by.find(n);
    return by == failure.ended_by.end() ? std::string() : by->second;
  };
  for (const int n : failure.ended_nodes) evict(roster.nodes[n].name, failure.evidence, sign_of(n));
  const std::string culprit = failure.node < 0 ? "" : roster.nodes[failure.node].name;
  if (failure.ends_node && failure.node >= 0) evict(culprit, failure.evidence, sign_of(failure.node));
  for (const auto& [node, why] : state.evicting) evict(node, why, "");
  if (failure.node < 0 || state.lost.contains(culprit) || evicted.contains(culprit) ||
      state.suspects.contains(culprit))
    return out;
  const bool often = failed_too_often(culprit, state, limits);
  if (failure.kind == Kind::start_failed || failure.blame == Blame::node || often)
    out.push_back(events::NodeSuspected{
        culprit, often ? fmt::format("{} attempts have ended by {}; the last: {}", state.failures.at(culprit),
                                     culprit, failure.evidence)
                       : failure.evidence});
  return out;
}

}  // namespace holdfast::launcher

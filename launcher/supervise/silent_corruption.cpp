#include "launcher/supervise/silent_corruption.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/budget_table.hpp"

namespace holdfast::launcher {
namespace {

const std::string sign = "silent corruption";  // of broken hardware, whose evictions are counted

/// The newest durable step up to which the comparisons came out equal; 0: begin again.
std::int64_t trusted_before(std::int64_t step, const RunState& state) {
  const auto after = state.durable.upper_bound(step);
  return after == state.durable.begin() ? 0 : *std::prev(after);
}

}  // namespace

Corruption judge(const control::RankDoubt& what, const std::vector<int>& accused, std::int64_t step,
                 const RunState& state, const Roster& roster, const config::Supervise& limits,
                 const config::RankPromises& promises) {
  std::vector<std::string> names;
  for (const int n : accused) names.push_back(roster.nodes[n].name);
  const bool convicts = promises.our_verdicts && accused.size() == 1;
  const bool spent = convicts && evictions_spent(sign, names.front(), state, limits);
  std::string evidence =
      fmt::format("the comparison of {} came out unequal after step {}{}{}{}", what.check, what.step,
                  names.empty() ? "" : fmt::format(" on {}", fmt::join(names, ", ")),
                  what.why.empty() ? "" : ": ", what.why);
  if (spent) evidence += "; " + why_kept(sign, state);
  Corruption out;
  out.events.push_back(events::SilentCorruption{what.attempt, std::max(step, what.step), what.check,
                                                what.step, what.accused, names,
                                                trusted_before(what.step, state), evidence});
  const bool leaves = convicts && !spent;
  for (const auto& node : names)
    out.events.push_back(leaves ? Event(events::NodeEvicted{node, evidence, sign})
                                : Event(events::NodeSuspected{node, evidence}));
  out.failure.kind = Failure::Kind::corrupted;
  out.failure.evidence = evidence;
  out.failure.node = leaves ? accused.front() : -1;
  out.failure.evictions_spent = spent;
  out.failure.rank = what.accused.size() == 1 ? what.accused.front() : -1;
  out.failure.blame = leaves ? Blame::node : Blame::nothing;
  return out;
}

}  // namespace holdfast::launcher

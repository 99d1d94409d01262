#include "launcher/supervise/attempt_plan.hpp"

#include <algorithm>

#include "launcher/supervise/budget_table.hpp"
#include "launcher/supervise/spare_choice.hpp"

namespace holdfast::launcher {

namespace {

/// The placement of the last attempt, where it fits.
std::vector<int> last_or_planned(const Roster& roster, const RunState& state) {
  if (state.attempts.empty()) return roster.first_placement;
  const auto& names = state.attempts.back().placement;
  if (names.empty() || names.size() > roster.first_placement.size() ||
      (!state.attempted() && names.size() != roster.first_placement.size()))
    return roster.first_placement;
  std::vector<int> last;
  for (const auto& node : names) last.push_back(roster.node_called(node));
  return std::find(last.begin(), last.end(), -1) == last.end() ? last : roster.first_placement;
}

}  // namespace

std::vector<int> placement_to_begin_with(const Roster& roster, const RunState& state) {
  auto placement = last_or_planned(roster, state);
  return state.attempted() ? placement : with_better_nodes(roster, state, std::move(placement));
}

double wait_before_next(const RunState& state) {
  return state.attempted() ? std::max(wait_after(state.setbacks), wait_after_false(state.false_starts)) : 0;
}

std::vector<Event> plan_events(const Decision& decision, const std::vector<int>& placement_before,
                               int attempt, const Roster& roster, const RunState& state,
                               const Shrinking& shrinking) {
  std::vector<Event> out;
  const auto name = [&](int node) { return roster.nodes[node].name; };
  for (const Promotion& p : decision.promotions) {
    // Not a node that only moves to another slot.
    if (std::find(placement_before.begin(), placement_before.end(), p.to) == placement_before.end())
      out.push_back(events::SparePromoted{p.slot, p.from < 0 ? std::nullopt : std::optional(name(p.from)),
                                          name(p.to), roster.nodes[p.to].scalable_unit});
  }
  const int before = static_cast<int>(placement_before.size()),
            after = static_cast<int>(decision.placement.size());
  const double slower = shrinking.together > 0 ? slowdown(shrinking, after) : 1.0;
  if (after < before) out.push_back(events::RunShrunk{after, roster.slots(), slower, decision.because});
  if (after > before) out.push_back(events::RunGrown{after, roster.slots(), slower, decision.because});
  std::vector<std::string> names;
  for (const int n : decision.placement) names.push_back(name(n));
  out.push_back(events::AttemptPlanned{attempt, std::move(names), name_of(decision.answer), decision.because,
                                       wait_before_next(state)});
  return out;
}

}  // namespace holdfast::launcher

// decide() gathers the PolicyFacts: what the failure says of a further try, the budget that is used up,
// whether spares fill the slots without a node, whether a better node takes the slot of a suspect or of an
// unfit one, and which smaller world is left. row_for() finds the first row of the table that holds, and the
// switch turns its answer into a placement or a run outcome. So the order of the rows is the policy: first
// what makes further tries useless, then budgets, then suspects, then lost nodes, and at last the shortage of
// nodes.
//
// Restart and substitute also let a run grow that had shrunk (grown()). Before a requeue for want of nodes
// the state is saved by the nodes that still hold all of it, if that is worth it; else outcome_of() says how
// the run ends, with a reason. Nothing is recorded here, and the state is only read: the caller records the
// decision.
#include "launcher/supervise/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "launcher/diagnose/output_patterns.hpp"
#include "launcher/supervise/budget_table.hpp"
#include "launcher/supervise/placement.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using config::WhenShort;
using Kind = Failure::Kind;

constexpr int code(Exit exit) { return static_cast<int>(exit); }

// The first row that holds gives the answer.
constexpr std::array table = {
    PolicyRow{"the exit code says that every try fails",
              [](const PolicyFacts& f) { return f.final_code != 0; }, PolicyAction::stop, 0},
    PolicyRow{"another try would fail the same way on any node",
              [](const PolicyFacts& f) { return f.same_again; }, PolicyAction::stop, code(Exit::no_requeue)},
    PolicyRow{"a checkpoint still cannot be read", [](const PolicyFacts& f) { return f.later; },
              PolicyAction::requeue, code(Exit::transient)},
    PolicyRow{"a budget of the cause is used up", [](const PolicyFacts& f) { return f.used_up != nullptr; },
              PolicyAction::stop, 0},
    PolicyRow{"a suspect node, and a better one is available",
              [](const PolicyFacts& f) { return !f.short_of_nodes && f.suspect && f.better_node; },
              PolicyAction::substitute, 0},
    PolicyRow{"a node is unfit before the first start, and a fit one is available",
              [](const PolicyFacts& f) { return !f.short_of_nodes && f.fitter_nodes; },
              PolicyAction::substitute, 0},
    PolicyRow{"every slot has its node", [](const PolicyFacts& f) { return !f.short_of_nodes; },
              PolicyAction::restart, 0},
    PolicyRow{"a spare for every slot that lost its node",
              [](const PolicyFacts& f) { return f.spares_suffice; }, PolicyAction::substitute, 0},
    PolicyRow{"no fit spare node is left, and supervise.when_short is stop",
              [](const PolicyFacts& f) { return f.when_short == WhenShort::stop; }, PolicyAction::stop,
              code(Exit::out_of_spares)},
    PolicyRow{"no fit spare node is left, and supervise.when_short is shrink",
              [](const PolicyFacts& f) { return f.can_shrink && f.when_short == WhenShort::shrink; },
              PolicyAction::shrink, 0},
    PolicyRow{"no fit spare node is left, and a smaller world costs less than the queue",
              [](const PolicyFacts& f) {
                return f.can_shrink && f.when_short == WhenShort::automatic && f.cheaper == Cheaper::shrink;
              },
              PolicyAction::shrink, 0},
    PolicyRow{"no fit spare node is left, and the run cannot shrink further",
              [](const PolicyFacts& f) { return f.when_short == WhenShort::shrink; }, PolicyAction::stop,
              code(Exit::out_of_spares)},
    PolicyRow{"no fit spare node is left", [](const PolicyFacts&) { return true; }, PolicyAction::requeue,
              code(Exit::transient)},
};

int final_code(const Failure& f) {
  return f.kind == Kind::rank_exited && f.our_codes && is_final(f.status) ? f.status : 0;
}

/// The placement with a spare that is not a suspect itself: replacing one suspect by another gains nothing.
std::optional<std::vector<int>> without_suspect(const Situation& s, const Failure& failure) {
  const auto slot = std::find(s.placement.begin(), s.placement.end(), failure.node);
  if (failure.node < 0 || slot == s.placement.end()) return std::nullopt;
  const int spare = best_spare(s.roster, s.state, s.placement, failure.node, s.views);
  if (spare < 0 || s.state.suspects.contains(s.roster.nodes[spare].name) ||
      (!s.views.empty() && s.views[spare].unfit()))
    return std::nullopt;
  auto placement = s.placement;
  placement[slot - s.placement.begin()] = spare;
  return placement;
}

/// Why no spare takes a slot.
std::string no_spare(const Situation& s) {
  std::vector<std::string> unfit;
  int fit = 0;
  for (int n = 0; n < static_cast<int>(s.views.size()); ++n) {
    const std::string& node = s.roster.nodes[n].name;
    if (s.state.lost.contains(node) || std::ranges::find(s.placement, n) != s.placement.end()) continue;
    if (!s.views[n].numerics_agree)
      unfit.push_back(node + ": it computes other bits");
    else
      ++fit;
  }
  return unfit.empty() ? "no spare node is left"
                       : fmt::format("{} ({})", fit > 0 ? "too few spares are fit" : "no spare is fit",
                                     fmt::join(unfit, "; "));
}

/// That the program had worked, and how long it was waited for what it needs.
std::string tried_for(const RunState& s) {
  if (s.false_starts == 0) return "";
  return fmt::format(
      ", though the program had worked before; it was tried again for {:.0f} s "
      "(supervise.start_s)",
      s.last_at - s.false_since);
}

RunOutcome outcome_of(const PolicyRow& row, const PolicyFacts& facts, const Situation& s,
                      const Failure& failure) {
  RunOutcome outcome;
  outcome.exit_code = row.exit_code != 0      ? row.exit_code
                      : facts.final_code != 0 ? facts.final_code
                                              : facts.used_up->exit_code;
  outcome.status = "failed";
  outcome.why = failure.evidence;
  if (facts.final_code != 0) return outcome;
  if (row.answer == PolicyAction::requeue && facts.later) {
    outcome.status = "requeued";
  } else if (row.answer == PolicyAction::requeue) {
    outcome.status = "requeued";
    outcome.exclude = to_exclude(s.state);
    outcome.why += "; " + no_spare(s);
    if (!outcome.exclude.empty())
      outcome.why += fmt::format("; the next job does without {}", fmt::join(outcome.exclude, ", "));
  } else if (outcome.exit_code == code(Exit::out_of_spares)) {
    outcome.status = "out_of_spares", outcome.why += "; " + no_spare(s);
  } else if (facts.same_again) {
    outcome.why += "; another try would fail the same way on any node" + tried_for(s.state);
  } else if (facts.used_up) {
    if (outcome.exit_code == code(Exit::transient)) outcome.status = "requeued";
    const bool program = facts.used_up->kind == CauseKind::program;
    outcome.why = fmt::format("{}{}; last: {}", facts.used_up->says(s.state, s.limits),
                              program ? tried_for(s.state) : "", failure.evidence);
  }
  return outcome;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::node_lost:
      return "node lost";
    case Kind::rank_exited:
      return "rank failed";
    case Kind::rank_hung:
      return "rank hung";
    case Kind::start_failed:
      return "ranks did not start";
    case Kind::misplaced:
      return "rank misplaced";
    case Kind::leader_changed:
      return "leader changed";
    case Kind::evicted:
      return "evicted";
    case Kind::corrupted:
      return "silent corruption";
  }
  return "";
}

const char* name_of(PolicyAction answer) {
  switch (answer) {
    case PolicyAction::restart:
      return "restart";
    case PolicyAction::substitute:
      return "substitute";
    case PolicyAction::shrink:
      return "shrink";
    case PolicyAction::requeue:
      return "requeue";
    case PolicyAction::stop:
      return "stop";
  }
  return "";
}

Blame blame_of(const Failure& f) { return f.kind == Kind::node_lost ? Blame::node : f.blame; }

bool blames_node(const Failure& f) {
  if (f.node < 0) return false;
  switch (f.kind) {
    case Kind::leader_changed:
    case Kind::evicted:
    case Kind::misplaced:
      return false;
    default:
      return f.blame != Blame::program && f.blame != Blame::shared;
  }
}

std::span<const PolicyRow> policy_table() { return table; }

const PolicyRow& row_for(const PolicyFacts& facts) {
  return *std::find_if(table.begin(), table.end(), [&](const PolicyRow& row) { return row.holds(facts); });
}

double hours_left(const RunState& state, const Shrinking& shrinking, int nodes, std::int64_t step,
                  double unix_now) {
  if (!state.attempted() || shrinking.steps <= 0) return -1;
  const auto& last = state.attempts.back();
  if (!last.first_step_at || !last.restored) return -1;
  const std::int64_t reached = std::max(step, last.last_step);
  const double steps = static_cast<double>(reached - last.restored->step - 1);
  if (steps < 1) return -1;
  double each = (last.ended_at.value_or(unix_now) - *last.first_step_at) / steps;
  if (shrinking.together > 0) each /= slowdown(shrinking, nodes);
  return static_cast<double>(std::max<std::int64_t>(0, shrinking.steps - reached)) * each / 3600;
}

Decision decide(const Situation& s, const Failure& failure, bool worth_saving) {
  const auto lost = [&](int n) { return s.state.lost.contains(s.roster.nodes[n].name); };
  PolicyFacts facts;
  facts.final_code = final_code(failure);
  facts.same_again = failure.same_again && !may_come_back(s.state, s.limits);
  facts.later = failure.later;
  facts.used_up = used_up(cause_kind_of(failure), s.state, s.limits);
  facts.short_of_nodes = std::any_of(s.placement.begin(), s.placement.end(), lost);
  facts.when_short = s.limits.when_short;

  const auto filled = fill(s.roster, s.state, s.placement, s.views);
  facts.spares_suffice = filled.has_value();
  const std::string culprit = failure.node < 0 ? "" : s.roster.nodes[failure.node].name;
  facts.suspect = failure.kind == Kind::start_failed || failure.blame == Blame::node ||
                  failed_too_often(culprit, s.state, s.limits);
  const auto better = facts.suspect ? without_suspect(s, failure) : std::nullopt;
  facts.better_node = better.has_value();
  const auto fitter = [&](const std::vector<int>& placement) {
    return s.first ? without_unfit(s.roster, s.state, placement, s.views) : placement;
  };
  facts.fitter_nodes = fitter(s.placement) != s.placement;
  std::optional<std::vector<int>> smaller;
  if (facts.short_of_nodes && !filled)
    smaller = shrunk(s.roster, s.state, s.placement, s.views, s.shrinking, 1);
  facts.can_shrink =
      smaller && s.limits.min_nodes > 0 && static_cast<int>(smaller->size()) >= s.limits.min_nodes;
  if (smaller)
    facts.cheaper = cheaper_when_short(s.shrinking, static_cast<int>(smaller->size()), s.hours_left);

  const PolicyRow& row = row_for(facts);
  Decision d;
  d.answer = row.answer;
  d.because = row.when;
  switch (row.answer) {
    case PolicyAction::stop:
      d.stop = outcome_of(row, facts, s, failure);
      return d;
    case PolicyAction::requeue:
      // Nodes that are left may hold all of the state, in memory that is lost with this job.
      if (worth_saving && smaller && !facts.later) {
        d.placement = *smaller;
        d.short_of = no_spare(s);
      } else {
        d.stop = outcome_of(row, facts, s, failure);
      }
      return d;
    case PolicyAction::restart:
      d.placement = grown(s.roster, s.state, s.placement, s.views, s.shrinking);
      break;
    case PolicyAction::substitute:
      d.placement = grown(s.roster, s.state,
                          facts.short_of_nodes ? fitter(filled->placement)
                          : better             ? *better
                                               : fitter(s.placement),
                          s.views, s.shrinking);
      break;
    case PolicyAction::shrink:
      d.placement = *smaller;
      break;
  }
  d.promotions = changes(s.placement, d.placement);
  return d;
}

}  // namespace holdfast::launcher

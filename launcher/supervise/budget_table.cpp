#include "launcher/supervise/budget_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using Limits = config::Supervise;

constexpr int exit_with(Exit exit) { return static_cast<int>(exit); }

/// What the attempts that used up a count have in common.
std::string in_common(const RunState& s, const Limits& limits, const std::string& known) {
  if (s.attempts.empty() || s.attempts.back().reports) return known;
  const bool hung = s.attempts.back().cause == name_of(Failure::Kind::rank_hung);
  return fmt::format("{} within {} s of their start (supervise.assumed_progress_s)",
                     hung ? "fell silent" : "ended", limits.assumed_progress_s);
}

constexpr std::array budgets = {
    BudgetRow{CauseKind::program, Budget::count, "max_same_step",
              "attempts in a row that ended at one step with one error", "the run ends with 93",
              exit_with(Exit::no_requeue),
              [](const RunState& s, const Limits& limits, const std::string&) {
                return s.same_step_count >= limits.max_same_step;
              },
              [](const RunState& s, const Limits& limits) {
                return fmt::format("{} attempts in a row {} on healthy nodes", s.same_step_count,
                                   in_common(s, limits, fmt::format("ended at step {}", s.same_step)));
              }},
    BudgetRow{CauseKind::program, Budget::count, "max_without_checkpoint",
              "attempts in a row without a new step or checkpoint", "the run ends with 93",
              exit_with(Exit::no_requeue),
              [](const RunState& s, const Limits& limits, const std::string&) {
                return s.no_progress >= limits.max_without_checkpoint;
              },
              [](const RunState& s, const Limits& limits) {
                return fmt::format("{} attempts in a row {}", s.no_progress,
                                   in_common(s, limits, "brought neither a new step nor a checkpoint"));
              }},
    BudgetRow{CauseKind::program, Budget::count, "max_restarts", "attempts since the newest checkpoint",
              "the run ends with 1", exit_with(Exit::runtime),
              [](const RunState& s, const Limits& limits, const std::string&) {
                return s.restarts >= limits.max_restarts;
              },
              [](const RunState& s, const Limits&) {
                return fmt::format(
                    "{} attempts have failed since the newest checkpoint (supervise.max_restarts)",
                    s.restarts);
              }},
    BudgetRow{CauseKind::node, Budget::count, "max_node_failures",
              "failures of the node in this job; one, if its hardware is broken",
              "another node has its slot; without one, `when_short` decides", 0,
              [](const RunState& s, const Limits& limits, const std::string& node) {
                return failed_too_often(node, s, limits);
              },
              nullptr},
    BudgetRow{CauseKind::node, Budget::count, "max_evictions",
              "nodes evicted by one sign of broken hardware in this job",
              "that sign evicts no more: a node that shows it is a suspect, and what it ends counts as the "
              "program's",
              0,
              [](const RunState& s, const Limits& limits, const std::string& node) {
                return std::any_of(s.evictions.begin(), s.evictions.end(), [&](const auto& by_sign) {
                  return evictions_spent(by_sign.first, node, s, limits);
                });
              },
              nullptr},
    BudgetRow{CauseKind::infrastructure, Budget::time, "infrastructure_s",
              "starts and waits in a row of this job, without a new step or checkpoint",
              "the run ends with 75", exit_with(Exit::transient),
              [](const RunState& s, const Limits& limits, const std::string&) {
                return s.setbacks > 0 && s.setback_s >= limits.infrastructure_s;
              },
              [](const RunState& s, const Limits&) {
                return fmt::format(
                    "the infrastructure ended {} attempts in a row before a new step, within {:.0f} s "
                    "(supervise.infrastructure_s)",
                    s.setbacks, s.setback_s);
              }},
    BudgetRow{CauseKind::planned, Budget::nothing, "", "", "", 0, nullptr, nullptr},
};

}  // namespace

const char* name_of(CauseKind kind) {
  switch (kind) {
    case CauseKind::program:
      return "program";
    case CauseKind::node:
      return "node";
    case CauseKind::infrastructure:
      return "infrastructure";
    case CauseKind::planned:
      return "planned";
  }
  return "";
}

const char* name_of(Budget budget) {
  switch (budget) {
    case Budget::count:
      return "count";
    case Budget::time:
      return "time with back-off";
    case Budget::nothing:
      return "none";
  }
  return "";
}

CauseKind cause_kind_of(const Failure& f) {
  using Kind = Failure::Kind;
  using control::Phase;
  switch (f.kind) {
    case Kind::evicted:
      return CauseKind::planned;
    case Kind::node_lost:
      return CauseKind::node;
    case Kind::start_failed:
    case Kind::misplaced:
    case Kind::leader_changed:
      return CauseKind::infrastructure;
    case Kind::corrupted:  // where no node can be named, the program may compute other bits each time
      return f.blame == Blame::node ? CauseKind::node : CauseKind::program;
    case Kind::rank_hung:  // in these phases it waits for other ranks to start, or for storage
      return f.phase == Phase::starting || f.phase == Phase::restoring || f.phase == Phase::checkpoint ||
                     f.phase == Phase::finishing
                 ? CauseKind::infrastructure
                 : CauseKind::program;
    case Kind::rank_exited:
      if (f.ends_node) return CauseKind::node;
      // The hardware of this one node does not explain it, or only the program says so.
      if (f.evictions_spent || f.unproven) return CauseKind::program;
      return f.blame == Blame::node || f.blame == Blame::claim || f.blame == Blame::shared || f.lost_peers ||
                     f.status == exit_with(Exit::transient)
                 ? CauseKind::infrastructure
                 : CauseKind::program;
  }
  return CauseKind::program;
}

std::span<const BudgetRow> budget_table() { return budgets; }

const BudgetRow* used_up(CauseKind kind, const RunState& state, const Limits& limits) {
  if (kind == CauseKind::program && may_come_back(state, limits)) return nullptr;
  const auto row = std::find_if(budgets.begin(), budgets.end(), [&](const BudgetRow& r) {
    return r.kind == kind && r.exit_code != 0 && r.used_up(state, limits, "");
  });
  return row == budgets.end() ? nullptr : &*row;
}

bool failed_too_often(const std::string& node, const RunState& state, const Limits& limits) {
  const auto failures = state.failures.find(node);
  return failures != state.failures.end() && failures->second >= limits.max_node_failures;
}

int max_evictions(const Roster& roster, const Limits& limits) {
  if (limits.max_evictions > 0) return limits.max_evictions;
  const int spares = static_cast<int>(roster.nodes.size()) - roster.slots();
  return std::max(1, (spares + 1) / 2);
}

bool evictions_spent(const std::string& sign, const std::string& node, const RunState& state,
                     const Limits& limits) {
  const auto by_sign = state.evictions.find(sign);
  return by_sign != state.evictions.end() && !by_sign->second.contains(node) &&
         static_cast<int>(by_sign->second.size()) >= limits.max_evictions;
}

std::string why_kept(const std::string& sign, const RunState& state) {
  const auto& nodes = state.evictions.at(sign);
  return fmt::format(
      "its node is kept: {} has evicted {} already (supervise.max_evictions), so the hardware "
      "of one node hardly explains it",
      sign, fmt::join(nodes, ", "));
}

double wait_after(int setbacks) {
  return setbacks <= 0 ? 0 : std::min(60.0, std::ldexp(1.0, std::min(setbacks - 1, 10)));
}

double wait_after_false(int starts) { return std::min(15.0, wait_after(starts)); }

bool may_come_back(const RunState& state, const Limits& limits) {
  return state.false_starts > 0 && state.last_at - state.false_since < limits.start_s;
}

}  // namespace holdfast::launcher

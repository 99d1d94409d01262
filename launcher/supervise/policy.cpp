#include "launcher/supervise/policy.hpp"

#include <algorithm>
#include <tuple>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

// | failure                                   | answer |
// |-------------------------------------------|---------------------------------------------------------------------|
// | rank exits with 2, 3, 4 or 93             | stop with that code: another try fails the same way | | same
// step, healthy nodes, limit reached   | stop with 93 | | restarts used up                          | stop
// with 1                                                         | | node lost | substitute; no spare: stop
// with 5                                   | | ranks did not start, culprit known, spare | substitute (the
// node becomes suspect)                               | | everything else                           | restart
// in place                                                    |

std::optional<RunState::Verdict> final_exit(const Failure& f) {
  if (f.kind != Failure::Kind::rank_exited) return std::nullopt;
  for (const Exit code : {Exit::usage, Exit::impossible, Exit::unhealthy, Exit::no_requeue})
    if (f.status == static_cast<int>(code)) return RunState::Verdict{f.status, "failed", f.evidence, 0};
  return std::nullopt;
}

bool placed(const std::vector<int>& placement, int node) {
  return std::find(placement.begin(), placement.end(), node) != placement.end();
}

}  // namespace

const char* name_of(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::node_lost:
      return "node lost";
    case Failure::Kind::node_idle_lost:
      return "mpirun's node lost";
    case Failure::Kind::rank_exited:
      return "rank failed";
    case Failure::Kind::rank_hung:
      return "rank hung";
    case Failure::Kind::start_failed:
      return "ranks did not start";
    case Failure::Kind::misplaced:
      return "rank misplaced";
    case Failure::Kind::mpirun_ended:
      return "mpirun ended";
    case Failure::Kind::leader_changed:
      return "leader changed";
  }
  return "";
}

int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement, int failed) {
  int best = -1;
  std::tuple<bool, bool, bool, int> best_key;
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n) {
    const auto& node = roster.nodes[static_cast<std::size_t>(n)];
    if (n == failed || state.lost.contains(node.name) || placed(placement, n)) continue;
    const bool elsewhere = failed >= 0 && node.unit != roster.nodes[static_cast<std::size_t>(failed)].unit;
    const std::tuple key{state.suspects.contains(node.name), n == roster.batch_host, elsewhere, n};
    if (best < 0 || key < best_key) best = n, best_key = key;
  }
  return best;
}

std::optional<std::vector<int>> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                                     Decision& decision) {
  for (std::size_t slot = 0; slot < placement.size(); ++slot) {
    const int node = placement[slot];
    if (!state.lost.contains(roster.nodes[static_cast<std::size_t>(node)].name)) continue;
    const int spare = best_spare(roster, state, placement, node);
    if (spare < 0) return std::nullopt;
    placement[slot] = spare;
    decision.promoted = spare, decision.slot = static_cast<int>(slot);
  }
  return placement;
}

Decision decide(const Roster& roster, const config::Supervise& limits, const RunState& state,
                const std::vector<int>& placement, const Failure& failure) {
  Decision d;
  if ((d.stop = final_exit(failure))) return d;
  if (state.same_step_count >= limits.max_same_step) {
    d.stop = {static_cast<int>(Exit::no_requeue), "failed",
              std::to_string(state.same_step_count) + " attempts in a row ended at step " +
                  std::to_string(state.same_step) + " on healthy nodes; last: " + failure.evidence,
              0};
    return d;
  }
  if (static_cast<int>(state.attempts.size()) >= limits.max_restarts) {
    d.stop = {static_cast<int>(Exit::runtime), "failed",
              "supervise.max_restarts = " + std::to_string(limits.max_restarts) +
                  " is used up; last: " + failure.evidence,
              0};
    return d;
  }
  auto filled = fill(roster, state, placement, d);
  if (!filled) {
    d.stop = {static_cast<int>(Exit::out_of_spares), "out_of_spares",
              failure.evidence + "; no spare node is left", 0};
    return d;
  }
  d.placement = std::move(*filled);
  if (failure.kind == Failure::Kind::start_failed && failure.node >= 0) {
    const int spare = best_spare(roster, state, d.placement, failure.node);
    const auto slot = std::find(d.placement.begin(), d.placement.end(), failure.node);
    if (spare >= 0 && slot != d.placement.end()) {
      d.promoted = spare, d.slot = static_cast<int>(slot - d.placement.begin());
      *slot = spare;
    }
  }
  return d;
}

}  // namespace holdfast::launcher

#include "launcher/supervise/spare_choice.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "src/base/error.hpp"

namespace holdfast::launcher {

namespace {

constexpr auto warning = control::NodeHealth::Fitness::warning;

/// The smaller, the better: best_spare() says why.
auto rank_of(const Roster& roster, const RunState& state, int n, int failed, const NodeView& view) {
  const auto& node = roster.nodes[n];
  const NodeScore score = score_of(roster, state, n);
  const bool elsewhere = failed >= 0 && node.scalable_unit != roster.nodes[failed].scalable_unit;
  return std::tuple{view.unfit(),
                    !view.heard_now,
                    state.suspects.contains(node.name),
                    score.failures,
                    view.fitness == warning,
                    n == roster.batch_host,
                    elsewhere,
                    score.in_ledger,
                    score.doubts,
                    n};
}

bool has_slot(const std::vector<int>& placement, int node) {
  return std::find(placement.begin(), placement.end(), node) != placement.end();
}

}  // namespace

NodeScore score_of(const Roster& roster, const RunState& state, int node) {
  const auto past = state.pasts.find(roster.nodes[node].name);
  NodeScore score = past == state.pasts.end() ? NodeScore{} : past->second.score(state.job_began_at);
  score.in_ledger = roster.nodes[node].past_failures;
  return score;
}

int best_spare(const Roster& roster, const RunState& state, const std::vector<int>& placement, int failed,
               const std::vector<NodeView>& views) {
  expects(views.empty() || views.size() == roster.nodes.size(), "one view for each node");
  int best = -1;
  decltype(rank_of(roster, state, 0, 0, {})) best_rank;
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n) {
    const NodeView view = views.empty() ? NodeView{} : views[n];
    if (n == failed || has_slot(placement, n) || state.lost.contains(roster.nodes[n].name) ||
        !view.numerics_agree)
      continue;
    const auto rank = rank_of(roster, state, n, failed, view);
    if (best < 0 || rank < best_rank) {
      best = n;
      best_rank = rank;
    }
  }
  return best;
}

std::vector<int> without_unfit(const Roster& roster, const RunState& state, std::vector<int> placement,
                               const std::vector<NodeView>& views) {
  for (int& node : placement) {
    if (views.empty() || !views[node].unfit()) continue;
    const int spare = best_spare(roster, state, placement, node, views);
    if (spare >= 0 && !views[spare].unfit() && views[spare].heard_now) node = spare;
  }
  return placement;
}

std::optional<Filled> fill(const Roster& roster, const RunState& state, std::vector<int> placement,
                           const std::vector<NodeView>& views) {
  Filled filled{std::move(placement), {}};
  for (std::size_t slot = 0; slot < filled.placement.size(); ++slot) {
    int& node = filled.placement[slot];
    if (!state.lost.contains(roster.nodes[node].name)) continue;
    const int spare = best_spare(roster, state, filled.placement, node, views);
    if (spare < 0) return std::nullopt;
    filled.promotions.push_back({static_cast<int>(slot), node, spare});
    node = spare;
  }
  return filled;
}

std::vector<int> with_better_nodes(const Roster& roster, const RunState& state, std::vector<int> placement) {
  std::vector<int> spares, worst_first;
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n)
    if (const auto& name = roster.nodes[n].name; !has_slot(placement, n) && n != roster.batch_host &&
                                                 !state.lost.contains(name) && !state.suspects.contains(name))
      spares.push_back(n);
  std::copy_if(placement.begin(), placement.end(), std::back_inserter(worst_first),
               [&](int n) { return score_of(roster, state, n) != NodeScore{}; });
  std::stable_sort(worst_first.begin(), worst_first.end(),
                   [&](int a, int b) { return score_of(roster, state, a) > score_of(roster, state, b); });
  for (const int n : worst_first) {
    const auto best = std::min_element(spares.begin(), spares.end(), [&](int a, int b) {
      return rank_of(roster, state, a, n, {}) < rank_of(roster, state, b, n, {});
    });
    if (best == spares.end()) break;
    const NodeScore mine = score_of(roster, state, n), other = score_of(roster, state, *best);
    const bool near = roster.nodes[*best].scalable_unit == roster.nodes[n].scalable_unit;
    if (other >= mine || (other.failures == mine.failures && !near)) continue;
    *std::find(placement.begin(), placement.end(), n) = *best;
    spares.erase(best);
  }
  return placement;
}

}  // namespace holdfast::launcher

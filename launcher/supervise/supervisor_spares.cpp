// The spares: which of them are fit, and which may take a slot.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/supervise/supervisor.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using Fitness = control::NodeHealth::Fitness;

constexpr std::size_t max_of_why = 200;  // bytes: the answer about all nodes is one message

}  // namespace

/// The state for the choice of a spare: a node that has never been heard counts as lost, one whose heartbeat
/// is late comes last (NodeView::fresh). When a switch fails, a node and the spare beside it are lost
/// together, and the spare may have been heard one heartbeat later.
RunState Supervisor::without_unheard_nodes() const {
  RunState state = state_;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    if (nodes_[n].last_beat < 0) state.lost.insert(name(n));
  return state;
}

std::vector<NodeView> Supervisor::views() const {
  // The numerics of the run are those of the nodes with slots; while none of these has reported, those of
  // more than half of the others, and otherwise they are not known.
  std::map<std::string, int> votes;
  int all_votes = 0;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    const auto& hash = nodes_[n].health.numerics;
    if (hash.empty()) continue;
    const int weight = slot_of(n) >= 0 ? 1 + static_cast<int>(nodes_.size()) : 1;
    votes[hash] += weight;
    all_votes += weight;
  }
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool known = numerics_placed() || (most != votes.end() && 2 * most->second > all_votes);
  std::vector<NodeView> out;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    const auto& health = nodes_[n].health;
    const bool agrees = !known || health.numerics.empty() || health.numerics == most->first;
    out.push_back({health.fitness, agrees, fresh(n)});
  }
  return out;
}

/// Has a node with a slot reported its numerics probe?
bool Supervisor::numerics_placed() const {
  return std::any_of(placement_.begin(), placement_.end(),
                     [this](int n) { return !nodes_[n].health.numerics.empty(); });
}

bool Supervisor::has_spare_for(int node) const {
  const RunState state = without_unheard_nodes();
  const auto all = views();
  const int spare = best_spare(roster_, state, placement_, node, all);
  return spare >= 0 && all[spare].fresh && !state.suspects.contains(name(spare));
}

void Supervisor::node_health(int n, const control::NodeHealth& what) {
  auto& node = nodes_[n];
  const bool news = node.health_at < 0
                        ? what.fitness != Fitness::unknown
                        : what.fitness != node.health.fitness || what.numerics != node.health.numerics;
  node.health = what;
  node.health_at = now_;
  if (!news || stage_ == Stage::over) return;
  record(events::SpareHealth{name(n), slot_of(n) < 0, name_of(what.fitness), what.numerics, what.why});
}

/// Has spares checked periodically.
void Supervisor::check_spares() {
  if (limits_.check_spares_s <= 0 || now_ < next_check_ || stage_ == Stage::gathering) return;
  CheckNodes check;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    if (slot_of(n) < 0 && !lost(n) && fresh(n)) check.nodes.push_back(n);
  // And one active node, for the spares to be compared with: before its ranks start, which need the node.
  if (!check.nodes.empty() && stage_ == Stage::clearing && fresh(placement_.front()) && !numerics_placed())
    check.nodes.push_back(placement_.front());
  next_check_ = now_ + limits_.check_spares_s;
  if (!check.nodes.empty()) actions_.push_back(std::move(check));
}

/// All nodes, as a JSON array.
std::string Supervisor::spares_text() const {
  const auto all = views();
  json out = json::array();
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    const auto& node = nodes_[n];
    const auto& known = roster_.nodes[n];
    const auto failures = state_.failures.find(known.name);
    const int slot = slot_of(n);
    const bool is_lost = lost(n);
    out.push_back({{"node", known.name},
                   {"role", state_.evicted.contains(known.name)    ? "evicted"
                            : is_lost                              ? "lost"
                            : slot >= 0                            ? "active"
                            : state_.suspects.contains(known.name) ? "suspect"
                                                                   : "spare"},
                   {"slot", slot >= 0 && !is_lost ? json(slot) : json(-1)},
                   {"scalable_unit", known.scalable_unit},
                   {"batch_host", n == roster_.batch_host},
                   {"fitness", name_of(node.health.fitness)},
                   {"why", node.health.why.substr(0, max_of_why)},
                   {"numerics_agree", all[n].numerics_agree},
                   {"failures", failures == state_.failures.end() ? 0 : failures->second},
                   {"past_failures", known.past_failures},
                   {"heard_s", node.last_beat < 0 ? json(nullptr)
                                                  : json(std::round((now_ - node.last_beat) * 10) / 10)}});
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);  // a character may be cut in two
}

}  // namespace holdfast::launcher

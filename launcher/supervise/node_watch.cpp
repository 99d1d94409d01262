#include "launcher/supervise/node_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::launcher {
namespace {

// Messages of a node that died may still arrive so long after others have noticed its end.
constexpr double in_flight_s = 0.02;

}  // namespace

NodeWatch::NodeWatch(std::vector<std::string> names, const config::Supervise& limits, double now)
    : names_(std::move(names)),
      limits_(limits),
      nodes_(names_.size()),
      began_(now),
      resumed_at_(LifeSigns::never) {}

void NodeWatch::heartbeat(int n, double now) {
  nodes_[n].connected = true;
  nodes_[n].last_heartbeat = now;
}

void NodeWatch::cleared(int n, int attempt) { nodes_[n].cleared = std::max(nodes_[n].cleared, attempt); }

void NodeWatch::forget(int n) {
  nodes_[n].last_heartbeat = -1;
  nodes_[n].kernel_answered = LifeSigns::never;
  nodes_[n].cleared = 0;
}

void NodeWatch::suspended(double seconds, double now) {
  resumed_at_ = now;
  for (auto& node : nodes_) {
    if (node.last_heartbeat >= 0) node.last_heartbeat += seconds;
    if (node.heard_before) *node.heard_before += seconds;
  }
}

void NodeWatch::extend_deadlines(double seconds, double now) {
  began_ = std::min(began_ + seconds, now);
  if (minority_since_ >= 0) minority_since_ = std::min(minority_since_ + seconds, now);
}

bool NodeWatch::hears(int n, double now) const {
  const auto& node = nodes_[n];
  return node.connected && node.last_heartbeat >= 0 &&
         now - node.last_heartbeat <= 3e-3 * limits_.heartbeat_ms;
}

std::vector<bool> NodeWatch::heard_now(double now) const {
  std::vector<bool> out;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) out.push_back(hears(n, now));
  return out;
}

std::optional<double> NodeWatch::age_s(int n, double now) const {
  return heard(n) ? std::optional(now - nodes_[n].last_heartbeat) : std::nullopt;
}

bool NodeWatch::all_heard_since(const std::vector<int>& nodes, double since) const {
  return std::all_of(nodes.begin(), nodes.end(), [&](int n) {
    return nodes_[n].connected && nodes_[n].last_heartbeat > since + in_flight_s;
  });
}

bool NodeWatch::majority(const Names& lost, double now) const {
  const double recent_s = 0.5e-3 * limits_.node_silence_ms;
  if (now - resumed_at_ < recent_s) return false;
  int voters = 0, reached = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (lost.contains(names_[n])) continue;
    ++voters;
    reached += nodes_[n].last_heartbeat >= 0 && now - nodes_[n].last_heartbeat <= recent_s;
  }
  return 2 * reached >= voters;
}

bool NodeWatch::count_majority(const Names& lost, double now) {
  const bool there = majority(lost, now);
  if (there)
    minority_since_ = -1;
  else if (minority_since_ < 0)
    minority_since_ = now;
  return there;
}

std::vector<SilentNode> NodeWatch::silent_nodes(const Witness& witness, double now) const {
  std::vector<SilentNode> out;
  const double silence_s = 1e-3 * limits_.node_silence_ms;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    const auto& node = nodes_[n];
    if (witness.lost.contains(names_[n])) continue;
    LifeSigns signs{.agent = waited_since(node)};
    if (std::find(witness.placement.begin(), witness.placement.end(), n) != witness.placement.end())
      signs.ranks = witness.ranks;
    if (witness.kernels_count) signs.kernel = node.kernel_answered;
    const double silent = now - signs.agent;
    if (node.last_heartbeat >= 0) {
      if (is_lost(signs, now, silence_s))
        out.push_back(
            {n, silent,
             fmt::format("no heartbeat of {} for {:.1f} s{}", names_[n], silent, says_of(signs, now))});
      continue;
    }
    // Never heard in this term: at the first start agents may be slow, after a takeover they run already. The
    // silence of the leader before began in its term; its agent has two heartbeats to answer in this one.
    const double patience_s = witness.took_over ? silence_s : limits_.start_s;
    if (is_lost(signs, now, patience_s) && now - began_ > 2e-3 * limits_.heartbeat_ms)
      out.push_back({n, silent,
                     fmt::format("no agent has answered on {} for {:.1f} s{}{}", names_[n], silent,
                                 node.unreached.empty() ? "" : ": " + node.unreached, says_of(signs, now))});
  }
  return out;
}

}  // namespace holdfast::launcher

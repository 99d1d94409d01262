#pragma once
// The agents of the nodes as this leader hears them: heartbeats, silence, and whether half of them are
// reached. Which nodes are lost, and where ranks are, is told to it. Pure.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/supervise/life_signs.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// Nothing has shown for too long that this node lives.
struct SilentNode {
  int node = -1;
  double silent_s = 0;
  std::string evidence;
};

/// All times are in seconds of one clock.
class NodeWatch {
 public:
  using Names = std::set<std::string>;
  /// `names` of the nodes; `now`: since when their agents are waited for.
  NodeWatch(std::vector<std::string> names, const config::Supervise& limits, double now);

  void heard_before(int node, double at) { nodes_[node].heard_before = at; }  ///< in the term before
  void heartbeat(int node, double now);
  void disconnected(int node) { nodes_[node].connected = false; }
  void unreached(int node, const std::string& why) { nodes_[node].unreached = why; }
  void kernel_answered(int node, double at) { nodes_[node].kernel_answered = at; }
  void cleared(int node, int attempt);  ///< attempts before this one have ended there
  void forget(int node);                ///< it is lost: what was heard of it counts no more
  /// This process has been suspended: the messages of that time have not been read yet.
  void suspended(double seconds, double now);
  /// Nothing was decided for so long: that time counts for no deadline.
  void extend_deadlines(double seconds, double now);

  bool connected(int node) const { return nodes_[node].connected; }
  bool heard(int node) const {
    return nodes_[node].last_heartbeat >= 0;
  }                                               ///< in this term, since it was lost
  bool hears(int node, double now) const;         ///< its heartbeats come
  std::vector<bool> heard_now(double now) const;  ///< by node: hears()
  bool has_cleared(int node, int attempt) const { return nodes_[node].cleared >= attempt; }
  /// Since its last heartbeat; nothing: not heard.
  std::optional<double> age_s(int node, double now) const;
  /// Since it was last heard in the term before, or is waited for.
  double waited_s(int node, double now) const { return now - nodes_[node].heard_before.value_or(began_); }
  /// Each of `nodes` has been heard after `since`, so none of them had died then.
  bool all_heard_since(const std::vector<int>& nodes, double since) const;

  /// Counts agents heard within half of the silence after which a node is lost: of nodes that are cut off
  /// together, none must be declared lost while the others still count as reached because their last
  /// heartbeats came a little later. After a suspension no agent has been heard yet.
  bool majority(const Names& lost, double now) const;
  /// The same, to be called at every tick; without a majority the time begins that minority_s() tells.
  bool count_majority(const Names& lost, double now);
  double minority_s(double now) const { return minority_since_ < 0 ? 0 : now - minority_since_; }

  /// What else is known when agents are silent.
  struct Witness {
    const Names& lost;
    const std::vector<int>& placement;
    double ranks = LifeSigns::never;  ///< when all ranks of the placement last lived
    bool kernels_count = true;        ///< not once ranks fail: they may have noticed the end of a node
    bool took_over = false;           ///< from another leader of this job: agents run already
  };
  std::vector<SilentNode> silent_nodes(const Witness& witness, double now) const;

 private:
  struct Node {
    bool connected = false;
    double last_heartbeat = -1;  ///< -1: never heard in this term
    double kernel_answered = LifeSigns::never;
    std::optional<double> heard_before;
    int cleared = 0;
    std::string unreached;  ///< why there was no connection last
  };
  double waited_since(const Node& node) const {
    return node.last_heartbeat >= 0 ? node.last_heartbeat : node.heard_before.value_or(began_);
  }

  std::vector<std::string> names_;
  config::Supervise limits_;
  std::vector<Node> nodes_;
  double began_;
  double resumed_at_;           ///< when this process was last found to have been suspended
  double minority_since_ = -1;  ///< -1: there is a majority
};

}  // namespace holdfast::launcher

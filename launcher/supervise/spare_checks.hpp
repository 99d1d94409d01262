#pragma once
// What the checks of nodes have found, and which nodes are to be checked next: every node once before ranks
// start for the first time, then spares from time to time. What most nodes have in common counts for none of
// them: it is a fault of the cluster, or of its description. Pure.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/record/events.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/spare_choice.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Findings that most nodes have in common: check -> in words.
using SharedFindings = std::map<std::string, std::string>;
/// What was found of a node, without what it has in common with most others.
control::NodeHealth own_health(const control::NodeHealth& found, const SharedFindings& shared);
/// A critical finding that no program causes: memory and disks that are full may be its own doing.
std::optional<std::string> fault_of_node(const control::NodeHealth& found);

class SpareChecks {
 public:
  /// `every_s`: supervise.check_spares_s; 0: never. `first`: ranks have not been started in this job.
  SpareChecks(std::size_t nodes, int every_s, bool first, double now);

  /// The node has been heard, and ranks have not been started in this job: is it to be checked now?
  bool ask_first(int node);
  /// Are answers of first checks still waited for? A node that does not answer within first_checks_s is one
  /// of which nothing is known. To be called once all agents of the placement are there.
  bool awaits_first(const std::vector<bool>& heard_now, double now);

  /// The result of a check. One that has found nothing out leaves what is known of the node.
  void take(int node, const control::NodeHealth& what);
  /// On record by an earlier leader.
  void known(int node, const control::NodeHealth& what);
  /// Findings that more than half of the nodes that are not `lost` have in common, and are not on record as
  /// such.
  std::vector<events::FindingShared> news_of_all(const Roster& roster, const std::set<std::string>& lost,
                                                 const SharedFindings& shared) const;
  /// What is news of this node, to be recorded. Of a node with a slot nothing is recorded while it is fit.
  std::optional<control::NodeHealth> news_of(int node, bool placed, const SharedFindings& shared);
  control::NodeHealth newest(int node, const SharedFindings& shared) const {
    return own_health(nodes_[node].newest, shared);
  }

  /// The nodes as the choice of a spare sees them; `heard_now`: which of them are heard. The numerics of the
  /// run are those of the nodes with slots; while none of these has reported, those of more than half of the
  /// others, and otherwise they are not known.
  std::vector<NodeView> views(const std::vector<int>& placement, const std::vector<bool>& heard_now,
                              const SharedFindings& shared) const;

  bool due(double now) const { return every_s_ > 0 && now >= next_; }
  /// The nodes to check now: spares that are heard and not `lost`.
  std::vector<int> begin(const Roster& roster, const std::set<std::string>& lost,
                         const std::vector<int>& placement, const std::vector<bool>& heard_now, double now);

 private:
  struct Node {
    bool asked = false, answered = false;  ///< for the first check
    control::NodeHealth newest;
    std::optional<control::NodeHealth> told;  ///< on record
  };
  bool numerics_placed(const std::vector<int>& placement) const;

  std::vector<Node> nodes_;
  int every_s_;
  double next_;
  double awaited_since_ = -1;
};

}  // namespace holdfast::launcher

#pragma once
// What the checks of nodes have found, and when spares are to be checked next. Pure.
#include <optional>
#include <set>
#include <vector>

#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/spare_choice.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class SpareChecks {
 public:
  /// `every_s`: supervise.check_spares_s; 0: never. The first check is due `now`.
  SpareChecks(std::size_t nodes, int every_s, double now);

  /// The result of a check. True: it differs from the one before, and is to be recorded.
  bool take(int node, const control::NodeHealth& what);
  const control::NodeHealth& newest(int node) const { return nodes_[node].newest; }

  /// The nodes as the choice of a spare sees them; `fresh`: which of them are heard. The numerics of the run
  /// are those of the nodes with slots; while none of these has reported, those of more than half of the
  /// others, and otherwise they are not known.
  std::vector<NodeView> views(const std::vector<int>& placement, const std::vector<bool>& fresh) const;

  bool due(double now) const { return every_s_ > 0 && now >= next_; }
  /// The nodes to check now: spares that are heard and not `lost`. `before_start`: the ranks have not been
  /// started; then one active node, too, for the spares to be compared with.
  std::vector<int> begin(const Roster& roster, const std::set<std::string>& lost,
                         const std::vector<int>& placement, const std::vector<bool>& fresh, bool before_start,
                         double now);

 private:
  struct Node {
    bool checked = false;
    control::NodeHealth newest;
  };
  bool numerics_placed(const std::vector<int>& placement) const;

  std::vector<Node> nodes_;
  int every_s_;
  double next_;
};

}  // namespace holdfast::launcher

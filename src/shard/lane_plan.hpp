#pragma once
// The order in which gradients are added, whatever the layout (numerics rules 1-6): leaves into lanes from
// left to right, lanes into a tree as a binary counter counts. Pure: everybody can compute what everybody
// holds.
#include <cstdint>
#include <vector>

namespace holdfast::shard {

/// Lanes [first, first + count) already added up: one node of the tree. count is a power of two that divides
/// first.
struct TreeNode {
  int first = 0, count = 1;
  bool operator==(const TreeNode&) const = default;
};

/// One addition, on numbered accumulators.
struct LaneOp {
  enum class Kind {
    copy_leaf,  ///< accumulator `slot` = leaf number `leaf`: the first of a lane is copied, since 0 + (-0) is
                ///< not -0
    add_leaf,   ///< accumulator `slot` += leaf
    merge,      ///< accumulator `slot` += accumulator `slot` + 1, its right neighbour
  };
  Kind kind;
  int slot = 0;
  int leaf = 0;  ///< relative to the first leaf of the micro-step
  bool operator==(const LaneOp&) const = default;
};

/// Nodes in the order of a binary counter: equal aligned neighbours merge. Holds the shape only; node i lives
/// in accumulator i.
class Counter {
 public:
  /// Appends a node to the right; returns how many merges follow (each is `merge` of the then last two).
  int push(TreeNode node);
  int size() const { return static_cast<int>(nodes_.size()); }
  const std::vector<TreeNode>& nodes() const { return nodes_; }
  void clear() { nodes_.clear(); }

 private:
  std::vector<TreeNode> nodes_;
};

/// How `leaves` gradients of an optimizer step fall to `replicas` groups of `group` ranks.
class LanePlan {
 public:
  /// lanes = 0: one per replica. Throws Error (usage) when lanes do not divide leaves, when there are more
  /// replicas than lanes, or when a replica's leaves are not a multiple of its ranks (some would have nothing
  /// to do).
  LanePlan(int leaves, int lanes, int replicas, int group);

  int leaves() const { return leaves_; }
  int lanes() const { return lanes_; }
  int leaves_per_lane() const { return leaves_ / lanes_; }
  /// Replica g owns lanes [g * lanes / replicas, (g + 1) * lanes / replicas).
  int first_lane(int replica) const { return static_cast<int>(std::int64_t{replica} * lanes_ / replicas_); }
  int micro_steps(int replica) const;
  /// Member `member` of the replica computes this leaf in micro-step `micro_step`.
  int leaf(int replica, int micro_step, int member) const;
  /// The additions of a micro-step, in order; its leaves are numbered 0 to group - 1.
  std::vector<LaneOp> additions(int replica, int micro_step) const;
  /// Accumulators a replica needs.
  int slots(int replica) const;
  /// What a replica holds after its last micro-step: node i in accumulator i.
  std::vector<TreeNode> nodes(int replica) const;
  /// Over the nodes of all replicas, numbered in order (node k is "leaf" k): the additions that leave the
  /// total in accumulator 0, the rest of the counter merged right to left.
  std::vector<LaneOp> final_additions() const;

 private:
  int leaves_, lanes_, replicas_, group_;
};

/// Accumulators that a list of additions touches.
int slots_of(const std::vector<LaneOp>& additions);

}  // namespace holdfast::shard

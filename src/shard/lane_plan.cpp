#include "src/shard/lane_plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::shard {

int Counter::push(TreeNode node) {
  int merges = 0;
  while (!nodes_.empty()) {
    const TreeNode left = nodes_.back();
    const bool neighbours = left.count == node.count && left.first + left.count == node.first;
    if (!neighbours || left.first % (2 * left.count) != 0) break;
    node = {left.first, 2 * left.count};
    nodes_.pop_back();
    ++merges;
  }
  nodes_.push_back(node);
  return merges;
}

LanePlan::LanePlan(int leaves, int lanes, int replicas, int group)
    : leaves_(leaves), lanes_(lanes > 0 ? lanes : replicas), replicas_(replicas), group_(group) {
  expects(leaves > 0 && replicas > 0 && group > 0, "leaves, replicas and ranks");
  if (replicas_ > lanes_)
    throw Error(Exit::usage, fmt::format("{} replicas cannot share {} lanes", replicas_, lanes_),
                "each replica adds up at least one lane of gradients",
                fmt::format("Set train.lanes to {} or more, or 0?", replicas_));
  if (leaves_ % lanes_ != 0)
    throw Error(Exit::usage, fmt::format("{} leaves cannot be cut into {} lanes", leaves_, lanes_),
                "lanes are equally long", "Set train.leaves to a multiple of train.lanes?");
  for (int g = 0; g < replicas_; ++g) {
    const int own = (first_lane(g + 1) - first_lane(g)) * leaves_per_lane();
    if (own % group_ != 0)
      throw Error(
          Exit::usage, fmt::format("{} leaves cannot be shared by {} ranks", leaves_, replicas_ * group_),
          fmt::format("replica {} has {} leaves for {} ranks", g, own, group_),
          "Set train.lanes to a multiple of the replicas, and train.leaves to one of lanes and ranks?");
  }
}

int LanePlan::micro_steps(int replica) const {
  return (first_lane(replica + 1) - first_lane(replica)) * leaves_per_lane() / group_;
}

int LanePlan::leaf(int replica, int micro_step, int member) const {
  return first_lane(replica) * leaves_per_lane() + micro_step * group_ + member;
}

std::vector<LaneOp> LanePlan::additions(int replica, int micro_step) const {
  const int length = leaves_per_lane(), begin = leaf(replica, 0, 0), at = leaf(replica, micro_step, 0);
  Counter counter;  // as it stands before this micro-step
  for (int lane = begin / length; lane < at / length; ++lane) counter.push({lane, 1});
  std::vector<LaneOp> out;
  for (int i = 0; i < group_; ++i) {
    const int place = (at + i) % length, slot = counter.size();
    out.push_back({place == 0 ? LaneOp::Kind::copy_leaf : LaneOp::Kind::add_leaf, slot, i});
    if (place + 1 < length) continue;
    const int merges = counter.push({(at + i) / length, 1});
    for (int m = 0; m < merges; ++m) out.push_back({LaneOp::Kind::merge, slot - 1 - m, 0});
  }
  return out;
}

int LanePlan::slots(int replica) const {
  int slots = 1;
  for (int m = 0; m < micro_steps(replica); ++m) slots = std::max(slots, slots_of(additions(replica, m)));
  return slots;
}

std::vector<TreeNode> LanePlan::nodes(int replica) const {
  Counter counter;
  for (int lane = first_lane(replica); lane < first_lane(replica + 1); ++lane) counter.push({lane, 1});
  return counter.nodes();
}

std::vector<LaneOp> LanePlan::final_additions() const {
  std::vector<LaneOp> out;
  Counter counter;
  int source = 0;
  for (int g = 0; g < replicas_; ++g) {
    for (const TreeNode& node : nodes(g)) {
      const int slot = counter.size();
      out.push_back({LaneOp::Kind::copy_leaf, slot, source++});
      const int merges = counter.push(node);
      for (int m = 0; m < merges; ++m) out.push_back({LaneOp::Kind::merge, slot - 1 - m, 0});
    }
  }
  for (int slot = counter.size() - 2; slot >= 0; --slot) out.push_back({LaneOp::Kind::merge, slot, 0});
  return out;
}

int slots_of(const std::vector<LaneOp>& additions) {
  int slots = 0;
  for (const LaneOp& op : additions)
    slots = std::max(slots, op.slot + (op.kind == LaneOp::Kind::merge ? 2 : 1));
  return slots;
}

}  // namespace holdfast::shard

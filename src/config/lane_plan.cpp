#include "src/config/lane_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/error.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {

Counter::Counter(int first, int end) {
  for (int at = first; at < end;) {
    int count = 1;  // the largest aligned node that begins here
    while (at % (2 * count) == 0 && count <= (end - at) / 2) count *= 2;
    nodes_.push_back({at, count});
    at += count;
  }
}

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
    : leaves_(leaves), lanes_(lanes > 0 ? lanes : leaves), replicas_(replicas), group_(group) {
  expects(leaves > 0 && replicas > 0 && group > 0, "leaves, replicas and ranks");
  if (leaves_ % lanes_ != 0)
    refuse("train.leaves is not a whole number of lanes", fmt::format("{} leaves, {} lanes", leaves_, lanes_),
           fmt::format("Use {} leaves?", (std::int64_t{leaves_} / lanes_ + 1) * lanes_));
  if (const std::int64_t ranks = std::int64_t{replicas_} * group_; leaves_ < ranks)
    refuse("there are fewer leaves than ranks",
           fmt::format("{} leaves, {} ranks; each rank computes at least one in a step", leaves_, ranks),
           fmt::format("Use {} leaves, or fewer ranks?", ranks));
  if (leaves_ % group_ != 0)
    refuse("train.leaves is not a multiple of the ranks of a shard group",
           fmt::format("{} leaves, groups of {} ranks; they compute equally many", leaves_, group_),
           fmt::format("Use {} leaves?", (std::int64_t{leaves_} / group_ + 1) * group_));
  part_ = group_ / std::gcd(leaves_per_lane(), group_);
  if (parts() < replicas_)
    refuse("there are too few lanes for the replicas",
           fmt::format("{} lanes of {} leaves, {} replicas of {} ranks", lanes_, leaves_per_lane(), replicas_,
                       group_),
           "Leave train.lanes out, or use larger shard groups?");
}

int LanePlan::micro_steps(int replica) const {
  return (first_lane(replica + 1) - first_lane(replica)) * leaves_per_lane() / group_;
}

int LanePlan::leaf(int replica, int micro_step, int member) const {
  return first_lane(replica) * leaves_per_lane() + micro_step * group_ + member;
}

std::vector<LaneOp> LanePlan::additions(int replica, int micro_step) const {
  const int length = leaves_per_lane(), at = leaf(replica, micro_step, 0);
  Counter counter(first_lane(replica), at / length);  // as it stands before this micro-step
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

int LanePlan::accumulators() const {
  int most = 1;
  for (int g = 0; g < replicas_; ++g)
    for (int end = leaf(g, 1, 0), m = 0; m < micro_steps(g); ++m, end += group_) {
      const int open = end % leaves_per_lane() == 0 ? 0 : 1;
      most = std::max(most, Counter(first_lane(g), end / leaves_per_lane()).size() + open);
    }
  return most;
}

int LanePlan::temporaries() const {
  int slots = 0;
  for (int g = 0; g < replicas_; ++g)
    for (int m = 0; m < micro_steps(g); ++m) slots = std::max(slots, slots_of(additions(g, m)));
  return std::max(0, slots - accumulators());
}

std::int64_t LanePlan::added_at_once(std::int64_t largest) const {
  constexpr std::int64_t most = 1 << 22;  // 16 MB: a GPU's cache holds a few, and launches are not many
  return temporaries() > 0 ? std::min(largest, most) : 0;
}

std::vector<TreeNode> LanePlan::nodes(int replica) const {
  return Counter(first_lane(replica), first_lane(replica + 1)).nodes();
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

}  // namespace holdfast::config

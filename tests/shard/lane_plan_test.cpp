// The additions must be the same, whatever the layout: checked with numbers whose sums depend on the order.
#include "src/shard/lane_plan.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {
namespace {

constexpr int elements = 20;

/// 44 binades, so that almost every change of order changes the sum.
float gradient(int leaf, int element) {
  const std::uint64_t h = mix64(static_cast<std::uint64_t>(leaf + 1000 * element) + 17);
  return std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x807fffff) |
                              static_cast<std::uint32_t>(97 + (h >> 40) % 44) << 23);
}

void apply(const std::vector<LaneOp>& additions, std::vector<float>& slots,
           const std::vector<float>& leaves) {
  for (const LaneOp& op : additions) {
    auto at = static_cast<std::size_t>(op.slot);
    if (slots.size() < at + 2) slots.resize(at + 2);
    if (op.kind == LaneOp::Kind::copy_leaf) slots[at] = leaves[static_cast<std::size_t>(op.leaf)];
    if (op.kind == LaneOp::Kind::add_leaf) slots[at] += leaves[static_cast<std::size_t>(op.leaf)];
    if (op.kind == LaneOp::Kind::merge) slots[at] += slots[at + 1];
  }
}

/// The sum as `replicas` groups of `group` ranks compute it; -0 in every leaf when `negative_zero`.
float sum_of(const LanePlan& plan, int replicas, int group, int element = 0, bool negative_zero = false) {
  std::vector<float> nodes;
  for (int g = 0; g < replicas; ++g) {
    std::vector<float> slots;
    for (int step = 0; step < plan.micro_steps(g); ++step) {
      std::vector<float> leaves;
      for (int m = 0; m < group; ++m)
        leaves.push_back(negative_zero ? -0.f : gradient(plan.leaf(g, step, m), element));
      apply(plan.additions(g, step), slots, leaves);
    }
    EXPECT_LE(plan.nodes(g).size(), static_cast<std::size_t>(plan.slots(g)));
    nodes.insert(nodes.end(), slots.begin(),
                 slots.begin() + static_cast<std::ptrdiff_t>(plan.nodes(g).size()));
  }
  std::vector<float> total;
  apply(plan.final_additions(), total, nodes);
  return total[0];
}

TEST(LanePlan, SumIsTheSameForEveryLayout) {
  struct Case {
    int leaves, lanes;
  };
  for (const auto [leaves, lanes] :
       {Case{8, 8}, Case{48, 8}, Case{48, 6}, Case{120, 5}, Case{360, 12}, Case{360, 15}}) {
    std::vector<float> expected;
    for (int element = 0; element < elements; ++element)
      expected.push_back(sum_of(LanePlan(leaves, lanes, 1, 1), 1, 1, element));
    int tried = 0;
    for (int replicas = 1; replicas <= lanes; ++replicas)
      for (int group = 1; group <= 8; ++group) {
        try {
          const LanePlan plan(leaves, lanes, replicas, group);
          for (int element = 0; element < elements; ++element)
            EXPECT_EQ(std::bit_cast<std::uint32_t>(sum_of(plan, replicas, group, element)),
                      std::bit_cast<std::uint32_t>(expected[static_cast<std::size_t>(element)]))
                << leaves << ' ' << lanes << ' ' << replicas << 'x' << group;
          ++tried;
        } catch (const Error& error) {
          EXPECT_EQ(error.exit(), Exit::usage);
        }
      }
    EXPECT_GE(tried, 8);
  }
}

TEST(LanePlan, OtherLanesGiveOtherSums) {
  int different = 0;
  for (int element = 0; element < elements; ++element)
    different += sum_of(LanePlan(48, 8, 1, 1), 1, 1, element) != sum_of(LanePlan(48, 6, 1, 1), 1, 1, element);
  EXPECT_GT(different, 0);
}

TEST(LanePlan, NegativeZeroStays) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sum_of(LanePlan(8, 4, 2, 2), 2, 2, 0, true)), 0x80000000u);
}

TEST(LanePlan, EveryLeafIsComputedOnce) {
  const LanePlan plan(48, 8, 2, 3);
  std::vector<int> seen(48);
  for (int g = 0; g < 2; ++g)
    for (int step = 0; step < plan.micro_steps(g); ++step)
      for (int m = 0; m < 3; ++m) ++seen[static_cast<std::size_t>(plan.leaf(g, step, m))];
  EXPECT_EQ(seen, std::vector<int>(48, 1));
}

TEST(LanePlan, AccumulatorsAreFewAndOneWhereEveryReplicaIsALane) {
  EXPECT_EQ(LanePlan(64, 8, 8, 1).slots(0), 1);
  EXPECT_EQ(LanePlan(64, 8, 1, 1).slots(0), 4);  // 1 + log2(8 / 1)
  EXPECT_EQ(LanePlan(8, 0, 4, 1).lanes(), 4);
}

TEST(LanePlan, NodesOfAReplicaAreAlignedPowersOfTwo) {
  const LanePlan plan(5, 5, 2, 1);  // lanes 0,1 | 2,3,4
  EXPECT_EQ(plan.nodes(0), (std::vector<TreeNode>{{0, 2}}));
  EXPECT_EQ(plan.nodes(1), (std::vector<TreeNode>{{2, 2}, {4, 1}}));
}

TEST(LanePlan, RefusesWhatCannotBeShared) {
  EXPECT_THROW(LanePlan(8, 2, 4, 1), Error);  // more replicas than lanes
  EXPECT_THROW(LanePlan(8, 3, 1, 1), Error);  // lanes of unequal length
  EXPECT_THROW(LanePlan(8, 8, 1, 3), Error);  // 8 leaves for 3 ranks
  EXPECT_THROW(LanePlan(1, 0, 2, 1), Error);
}

}  // namespace
}  // namespace holdfast::shard

// Gathering and the canonical sum between real ranks: every strategy, type, prefetch depth and rule for
// keeping units that fits the world gives, bit for bit, what one loop computes; what travels is what the wire
// plan says; and after the first step nothing is allocated.
#include "src/shard/sharded_weights.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/shard/cases.hpp"
#include "tests/support/mpi_main.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks so.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace holdfast::shard {
namespace {

/// Ranks beside each other, or as if only `ranks_per_node` of them shared memory.
template <class Body>
void in_a_world(int ranks_per_node, Body body) {
  const auto world = tests::session().world({std::chrono::seconds(60), ranks_per_node});
  Bench bench(*world);
  body(bench);
}

TEST(ShardedWeights, EveryStrategyGivesWhatOneLoopGives) {
  in_a_world(0, [](Bench& bench) {
    EXPECT_GE(every_strategy(bench, {{24, 8}, {12, 12}, {24, 4}, {36, 6}}), 8);
  });
}

TEST(ShardedWeights, NodesOfTwoGiveTheSame) {
  in_a_world(2, [](Bench& bench) { EXPECT_GE(every_strategy(bench, {{24, 8}, {36, 6}}), 4); });
}

TEST(ShardedWeights, EveryTypeUnderEveryStrategy) { in_a_world(0, every_type); }

TEST(ShardedWeights, PrefetchAndKeepingChangeNothingButWhatTravels) {
  in_a_world(0, every_way_to_prefetch_and_keep);
}

TEST(ShardedWeights, NothingIsAllocatedAfterTheFirstStep) {
  in_a_world(0, [](Bench& bench) {
    for (const Choice choice : bench.choices()) {
      const Mesh mesh = bench.mesh_for(choice);
      const Groups& groups = bench.groups_for(mesh);
      Policy policy;
      policy.parameters = policy.reduce = DType::bf16;
      Rank here(odd_shape(true), mesh, policy, 24, 12, groups, bench.memory());
      here.step(0);
      const std::int64_t before = allocations;
      int wrong = here.step(1);
      wrong += here.evaluate(2);
      wrong += here.step(2);
      wrong +=
          here.evaluate(3);  // which waits for what the step has published: the next one takes the memory
      EXPECT_EQ(allocations - before, 0) << "strategy " << static_cast<int>(choice.strategy);
      EXPECT_EQ(wrong, 0);
    }
  });
}

}  // namespace
}  // namespace holdfast::shard

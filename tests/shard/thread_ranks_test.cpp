// The same as sharded_weights_test on threads: worlds larger than a test could start processes for, and
// communication in an order that a seed spoils.
#include <gtest/gtest.h>

#include "tests/shard/cases.hpp"
#include "tests/shard/thread_world.hpp"

namespace holdfast::shard {
namespace {

template <class Body>
void with_ranks(int size, Body body) {
  ThreadWorld::run(size, static_cast<std::uint64_t>(size), [&](int, comm::Communicator& world) {
    Bench bench(world);
    body(bench);
  });
}

TEST(ThreadRanks, SixUnderEveryStrategy) {
  with_ranks(6, [](Bench& bench) { EXPECT_GE(every_strategy(bench, {{36, 6}, {24, 12}}), 8); });
}

TEST(ThreadRanks, EightUnderEveryStrategy) {
  with_ranks(8, [](Bench& bench) { EXPECT_GE(every_strategy(bench, {{24, 8}, {16, 16}}), 8); });
}

TEST(ThreadRanks, EightInBf16) {
  with_ranks(8, [](Bench& bench) {
    Policy policy;
    policy.parameters = policy.reduce = DType::bf16;
    for (const Choice choice : bench.choices()) EXPECT_TRUE(bench.run(choice, policy, 16, 8));
  });
}

TEST(ThreadRanks, EightPrefetchDeeply) {
  with_ranks(8, [](Bench& bench) {
    Policy policy;
    policy.prefetch_forward = 3;
    policy.prefetch_backward = 2;
    for (const bool keep : {false, true}) {
      policy.kept = {keep, false, keep, false};
      for (const Choice choice : {Choice{config::Strategy::full_shard}, {config::Strategy::hfsdp, 4}})
        EXPECT_TRUE(bench.run(choice, policy, 16, 4, keep));
    }
  });
}

}  // namespace
}  // namespace holdfast::shard

#pragma once
// The matrix of settings that every kind of world goes through.
#include "tests/shard/fake_training.hpp"

namespace holdfast::shard {

struct Sum {
  int micro_batches, lanes;
};

/// Returns how many fit the world.
inline int every_strategy(Bench& bench, std::initializer_list<Sum> sums) {
  int tried = 0;
  for (const auto [micro_batches, lanes] : sums)
    for (const Choice choice : bench.choices())
      tried += bench.run(choice, {}, micro_batches, lanes, micro_batches == 36);
  return tried;
}

inline void every_type(Bench& bench) {
  for (const DType parameters : {DType::fp32, DType::bf16})
    for (const DType reduce : {DType::fp32, DType::bf16})
      for (const Choice choice : bench.choices()) {
        Policy policy;
        policy.parameters = parameters;
        policy.reduce = reduce;
        bench.run(choice, policy, 24, 8);
      }
}

inline void every_way_to_prefetch_and_keep(Bench& bench) {
  for (const Choice choice : bench.choices()) {
    if (bench.mesh_for(choice).group == 1) continue;  // nothing is gathered
    for (int depth : {0, 1, 2, 3})
      for (int keep = 0; keep < 4; ++keep) {
        Policy policy;
        policy.parameters = depth % 2 == 0 ? DType::fp32 : DType::bf16;
        policy.prefetch_forward = depth;
        policy.prefetch_backward = 3 - depth;
        policy.gathered_limit = depth == 3 ? 2 : 0;
        if (keep == 1) policy.kept = {false, true, false, true};
        if (keep > 1) policy.kept.assign(4, true);
        policy.keep_across_micro_steps = keep == 3;
        bench.run(choice, policy, 12, 4, depth == 2);
      }
  }
}

}  // namespace holdfast::shard

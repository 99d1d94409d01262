#pragma once
// A run without a model: weights and micro-batch gradients are pure functions of (step, micro-batch, tensor,
// element), so that everything a rank gathers and sums can be compared, bit for bit, with what one loop
// computes. Sizes are odd, gradients cover 44 binades, and some are -0 in every micro-batch.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/shard/sharded_weights.hpp"
#include "src/shard/wire_plan.hpp"

namespace holdfast::shard {

inline config::ModelShape odd_shape(bool tied) {
  config::ModelShape shape;
  shape.vocabulary = 97, shape.width = 20, shape.heads = 2, shape.kv_heads = 1, shape.ffn = 33,
  shape.layers = 4;
  shape.tied_embeddings = tied;
  return shape;
}

/// Sign and significand at random, exponents from 97 to 140: almost every change of order changes a sum.
inline float number(std::uint64_t stream, std::int64_t element) {
  if (element % 97 == 0) return -0.f;
  const std::uint64_t h =
      mix64(mix64(stream + 1) ^ static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u);
  return std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x807fffff) |
                              static_cast<std::uint32_t>(97 + (h >> 40) % 44) << 23);
}
inline float parameter(int step, std::size_t tensor, std::int64_t element) {
  return number(1'000'000 + static_cast<std::uint64_t>(step) * 1000 + tensor, element);
}
inline float micro_batch_gradient(int step, int micro_batch, std::size_t tensor, std::int64_t element) {
  return number(static_cast<std::uint64_t>((step * 1000 + micro_batch) * 100) + tensor, element);
}
/// As it is stored in `type`.
inline float stored_as(tensor::DType type, float x) {
  return type == tensor::DType::fp32 ? x : tensor::to_float(tensor::to_bf16(x));
}
inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// The canonical sum of one element, written as the rules read: lanes from left to right, then equal
/// neighbours as a binary counter, the rest from right to left.
inline float canonical_sum(int step, int micro_batches, int lanes, tensor::DType reduce, std::size_t tensor,
                           std::int64_t element) {
  struct Sum {
    int lanes;
    float value;
  };
  std::vector<Sum> sums;
  for (int lane = 0, micro_batch = 0; lane < lanes; ++lane) {
    float sum = stored_as(reduce, micro_batch_gradient(step, micro_batch++, tensor, element));
    for (int i = 1; i < micro_batches / lanes; ++i)
      sum += stored_as(reduce, micro_batch_gradient(step, micro_batch++, tensor, element));
    sums.push_back({1, sum});
    while (sums.size() > 1 && sums[sums.size() - 2].lanes == sums.back().lanes) {
      const Sum right = sums.back();
      sums.pop_back();
      sums.back() = {2 * right.lanes, sums.back().value + right.value};
    }
  }
  float sum = sums.back().value;
  for (std::size_t i = sums.size() - 1; i-- > 0;) sum = sums[i].value + sum;
  return sum;
}

/// One rank's shards and everything they need.
struct Rank {
  Rank(const config::ModelShape& shape, const Mesh& mesh, const Policy& chosen, int micro_batches_per_step,
       int lane_count, const Groups& made, std::span<std::byte> symmetric_memory)
      : layout(layout_of(shape, mesh)),
        policy(chosen),
        micro_batches(micro_batches_per_step),
        lane_number(lane_count),
        lanes(micro_batches, lane_number, mesh.replicas, mesh.group),
        groups(made),
        weights(layout, lanes, policy, {groups, *kernels, *reduce_kernels, stream, symmetric, own}) {
    // What a run finds zeroed is anything but zero here.
    std::memset(symmetric_memory.data(), 0xff, symmetric_memory.size());
    symmetric.commit(symmetric_memory);
    own.commit();
    set_parameters(0);
  }

  void set_parameters(int step) {
    for (std::size_t t = 0; t < layout.slices.size(); ++t) {
      const StoredSlice& s = layout.slices[t];
      for (std::int64_t i = 0; i < s.optimized.count; ++i)
        weights.parameters()[s.optimizer_offset + i] = parameter(step, t, s.optimized.first + i);
    }
    weights.publish();
  }
  /// An optimizer step as the trainer walks it, with the protocol of model::Weights. Returns what was wrong.
  int step(int number) {
    int wrong = 0;
    const int replica = layout.mesh.replica();
    weights.begin_step();
    for (int i = 0; i < lanes.micro_steps(replica); ++i) {
      weights.begin_micro_step(i, i == number);  // one that somebody looks at changes no sum
      wrong += micro_batch(number, lanes.micro_batch(replica, i, layout.mesh.member()), true);
    }
    weights.finish_step();
    set_parameters(number + 1);
    return wrong;
  }
  /// One micro-batch beside the steps, whose gradients nobody reduces.
  int recompute(int number) {
    weights.begin_micro_batch();
    return micro_batch(number, 0, false);
  }
  int evaluate(int number) {
    weights.begin_evaluation();
    int wrong = forward(number);
    if (layout.tied) weights.acquire(0);
    wrong += use(layout.layers + 1, number);
    weights.release(layout.layers + 1);
    if (layout.tied) weights.release(0);
    return wrong;
  }
  /// Elements of the step's gradient sum that differ from the canonical one.
  int wrong_sums(int number) {
    int wrong = 0;
    for (std::size_t t = 0; t < layout.slices.size(); ++t) {
      const StoredSlice& s = layout.slices[t];
      for (std::int64_t i = 0; i < s.optimized.count; ++i)
        wrong += !same_bits(
            weights.gradients()[s.optimizer_offset + i],
            canonical_sum(number, micro_batches, lane_number, policy.reduce, t, s.optimized.first + i));
    }
    return wrong;
  }

 private:
  int micro_batch(int step, int which, bool reduced) {
    const int head = layout.layers + 1;
    const auto reduce = [&](int unit) {
      if (reduced) weights.reduce(unit);
    };
    int wrong = forward(step);
    if (layout.tied) weights.acquire(0);
    wrong += use(head, step);
    if (layout.tied) write_gradients(0, step, which + 1);  // begun here, completed at the end
    write_gradients(head, step, which);
    reduce(head);
    weights.release(head);
    if (layout.tied) weights.release(0);
    for (int unit = layout.layers; unit >= 1; --unit) {
      wrong += use(unit, step);
      write_gradients(unit, step, which);
      reduce(unit);
      weights.release(unit);
    }
    write_gradients(0, step, which);
    reduce(0);
    return wrong;
  }
  int forward(int number) {
    int wrong = 0;
    for (int unit = 0; unit <= layout.layers; ++unit) {
      wrong += use(unit, number);
      weights.release(unit);
    }
    return wrong;
  }
  int use(int unit, int step) {
    weights.acquire(unit);
    int wrong = 0;
    for (std::size_t t = 0; t < layout.slices.size(); ++t) {
      if (layout.slices[t].unit != unit) continue;
      const void* weight = weights.weight(static_cast<int>(t));
      for (std::int64_t e = 0; e < layout.slices[t].elements; ++e) {
        const float found = policy.parameters == tensor::DType::fp32
                                ? static_cast<const float*>(weight)[e]
                                : tensor::to_float(static_cast<const tensor::Bf16*>(weight)[e]);
        wrong += !same_bits(found, stored_as(policy.parameters, parameter(step, t, e)));
      }
    }
    return wrong;
  }
  void write_gradients(int unit, int step, int micro_batch) {
    for (std::size_t t = 0; t < layout.slices.size(); ++t) {
      if (layout.slices[t].unit != unit) continue;
      float* gradient = weights.gradient(static_cast<int>(t));
      const bool adds = weights.adds(static_cast<int>(t));
      for (std::int64_t e = 0; e < layout.slices[t].elements; ++e) {
        const float x = micro_batch_gradient(step, micro_batch, t, e);
        if (weights.gradient_type(static_cast<int>(t)) == tensor::DType::bf16)
          reinterpret_cast<tensor::Bf16*>(gradient)[e] = tensor::to_bf16(x);
        else
          gradient[e] = adds ? gradient[e] + x : x;
      }
    }
  }

 public:
  Layout layout;
  Policy policy;
  int micro_batches, lane_number;
  LanePlan lanes;
  const Groups& groups;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1),
                                    reduce_kernels = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena symmetric{"symmetric memory"}, own{"own memory"};
  ShardedWeights weights;
};

struct Choice {
  config::Strategy strategy = config::Strategy::full_shard;
  int group = 0;  ///< 0: the strategy says
};
/// Every way to cut a world.
inline std::vector<Choice> choices_for(int world) {
  using config::Strategy;
  std::vector<Choice> out = {
      {Strategy::no_shard, 0}, {Strategy::full_shard, 0}, {Strategy::shard_grad_op, 0}};
  for (int group = 1; group <= world; ++group)
    if (world % group == 0)
      for (auto strategy : {Strategy::hybrid_shard, Strategy::hfsdp}) out.push_back({strategy, group});
  return out;
}

inline bool fits(int micro_batches, int lanes, const Mesh& mesh) {
  try {
    LanePlan(micro_batches, lanes, mesh.replicas, mesh.group);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// One rank's place in a world of any kind.
class Bench {
 public:
  static constexpr std::int64_t symmetric_bytes = 16 << 20;

  explicit Bench(comm::Communicator& world)
      : world_(world), memory_(world.symmetric_memory(symmetric_bytes)) {}

  std::vector<Choice> choices() const { return choices_for(world_.size()); }
  Mesh mesh_for(Choice choice) const {
    return mesh_of(choice.strategy, choice.group, world_.size(), world_.size(), world_.rank());
  }

  /// Collective the first time.
  const Groups& groups_for(const Mesh& mesh) {
    auto& groups = groups_[mesh.group];
    if (!groups.gathers) groups = groups_of(mesh, world_);
    world_.barrier();  // nobody reads what the run before left in the symmetric memory
    return groups;
  }
  std::span<std::byte> memory() const { return memory_; }

  /// Two steps, an evaluation between them, and everything that must hold. False: does not fit this world.
  bool run(Choice choice, Policy policy, int micro_batches, int lanes, bool tied = false) {
    const Mesh mesh = mesh_for(choice);
    if (!fits(micro_batches, lanes, mesh)) return false;
    const auto shape = odd_shape(tied);
    if (choice.strategy == config::Strategy::shard_grad_op) policy.kept.assign(shape.layers, true);
    SCOPED_TRACE(fmt::format(
        "rank {} of {}, strategy {} group {} types {}/{} prefetch {}/{} limit {} kept {} across {} "
        "micro-batches {} "
        "lanes {} "
        "tied {}",
        world_.rank(), world_.size(), static_cast<int>(choice.strategy), choice.group,
        name_of(policy.parameters), name_of(policy.reduce), policy.prefetch_forward, policy.prefetch_backward,
        policy.gathered_limit, std::count(policy.kept.begin(), policy.kept.end(), true),
        policy.keep_across_micro_steps, micro_batches, lanes, tied));
    const Groups& groups = groups_for(mesh);
    Rank here(shape, mesh, policy, micro_batches, lanes, groups, memory_);
    EXPECT_EQ(here.step(0), 0) << "weights";
    EXPECT_EQ(here.recompute(1), 0) << "weights of a micro-batch";
    EXPECT_EQ(here.wrong_sums(0), 0) << "sums";
    EXPECT_EQ(here.evaluate(1), 0) << "weights of an evaluation";

    const comm::Wire before = wire_of(groups);
    const int wrong = here.step(1);
    const comm::Wire after = wire_of(groups);
    EXPECT_EQ(wrong, 0) << "weights of the second step";
    EXPECT_EQ(here.wrong_sums(1), 0) << "sums of the second step";

    const WirePlan plan = wire_plan(here.layout, here.lanes, policy);
    EXPECT_EQ(after.all_gather - before.all_gather, plan.gathers.all_gather + plan.replicas.all_gather);
    EXPECT_EQ(after.ordered_reduce_scatter - before.ordered_reduce_scatter,
              plan.reductions.ordered_reduce_scatter);
    EXPECT_EQ(after.exchange_partial_sums - before.exchange_partial_sums,
              plan.replicas.exchange_partial_sums);

    const MemoryPlan bytes = memory_plan(here.layout, here.lanes, policy);
    EXPECT_EQ(here.symmetric.planned_bytes(), bytes.symmetric_bytes());
    EXPECT_EQ(here.own.planned_bytes(), bytes.own_bytes());
    EXPECT_EQ(here.symmetric.used_bytes(), bytes.symmetric_bytes()) << "a buffer that nobody uses";
    EXPECT_EQ(here.own.used_bytes(), bytes.own_bytes()) << "a buffer that nobody uses";
    return true;
  }

 private:
  /// Of all three groups, when everything enqueued has been done.
  static comm::Wire wire_of(const Groups& all) {
    comm::Wire sum;
    for (auto* group : {all.gathers.get(), all.reductions.get(), all.replicas.get()}) {
      group->barrier();
      sum.all_gather += group->wire().all_gather,
          sum.ordered_reduce_scatter += group->wire().ordered_reduce_scatter;
      sum.exchange_partial_sums += group->wire().exchange_partial_sums;
    }
    return sum;
  }

  comm::Communicator& world_;
  std::span<std::byte> memory_;
  std::map<int, Groups> groups_;  // by size of the shard group
};

}  // namespace holdfast::shard

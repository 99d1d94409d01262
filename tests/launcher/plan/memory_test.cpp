// The planner's bytes are the trainer's: the same buffers, counted by the code that allocates them.
#include "launcher/plan/memory.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/config/choices.hpp"
#include "src/config/load.hpp"
#include "src/model/activations.hpp"
#include "src/shard/memory_plan.hpp"

namespace holdfast::launcher {
namespace {

using config::ActivationCheckpointing;
using config::Precision;
using config::Strategy;

config::ModelShape odd_shape() {
  config::ModelShape shape;
  shape.vocabulary = 509, shape.width = 24, shape.heads = 4, shape.kv_heads = 2, shape.ffn = 37,
  shape.layers = 5, shape.qkv_bias = true;
  return shape;
}

/// Memory of a run of `world` ranks as the planner and as the trainer's shards count it.
void expect_equal(const config::RunConfig& c, const config::ModelShape& shape, int world) {
  const int group = config::shard_group_of(c, world), replicas = world / group;
  const Memory planned = memory_of(c, shape, {}, group, replicas);
  for (int rank = 0; rank < world; ++rank) {
    const auto layout =
        shard::layout_of(shape, shard::mesh_of(c.shard.strategy, c.shard.group, group, world, rank));
    const config::LanePlan lanes(c.train, replicas, group);
    const auto real = shard::memory_plan(layout, lanes, shard::policy_of(c, shape.layers));
    const auto moments = 2 * layout.arena_elements * (c.precision.moments == Precision::bf16 ? 2 : 4);
    EXPECT_EQ(planned.state.optimizer, moments);
    EXPECT_EQ(planned.state.parameters, real.parameters);
    EXPECT_EQ(planned.state.copies, real.published);
    EXPECT_EQ(planned.state.frozen, real.frozen);
    EXPECT_EQ(planned.state.accumulators, real.accumulators + real.lane_scratch + real.sums);
    EXPECT_EQ(planned.state.total() + planned.gathered + planned.gradients,
              real.symmetric_bytes() + real.own_bytes() - real.scratch + moments);
  }
}

TEST(Memory, ShardsTakeWhatThePlanSays) {
  int checked = 0;
  for (const int world : {1, 2, 3, 4, 6, 8})
    for (const auto& strategy : config::names_of<Strategy>())
      for (const auto type : {Precision::fp32, Precision::bf16})
        for (const char* kept : {"none", "0,3-4", "all"})
          for (const int group : {1, 2, 3}) {
            config::RunConfig c;
            c.shard.strategy = *config::choice_called<Strategy>(strategy);
            const bool grouped =
                c.shard.strategy == Strategy::hybrid_shard || c.shard.strategy == Strategy::hfsdp;
            if (grouped ? world % group != 0 : group > 1) continue;
            if (c.shard.strategy == Strategy::shard_grad_op && std::string(kept) != "none") continue;
            if (grouped) c.shard.group = group;
            c.shard.keep_gathered = kept, c.shard.prefetch_forward = world % 4,
            c.shard.prefetch_backward = group;
            c.shard.gathered_limit = world == 6 ? 3 : 0;
            c.precision.parameters = type;
            if (world % 2 == 0) c.precision.moments = type;
            c.train.global_batch = 48;
            c.train.lanes = world == 3 || world == 6 ? 24 : 16;
            SCOPED_TRACE(strategy + " of " + std::to_string(world) + ", groups of " + std::to_string(group) +
                         ", keeping " + kept);
            expect_equal(c, odd_shape(), world);
            c.train.lanes = 0;
            expect_equal(c, odd_shape(), world);
            config::ModelShape adapted = odd_shape();
            adapted.adapters.rank = 3;
            for (const std::size_t layer : {0, 2, 4, 5, 6}) adapted.adapters.on[layer] = true;
            c.lora.rank = 3;
            for (const auto base : {config::Base::parameters, config::Base::int8, config::Base::nf4}) {
              c.lora.base = base;
              expect_equal(c, adapted, world);
            }
            ++checked;
          }
  EXPECT_GT(checked, 100);
}

TEST(Memory, AccumulatorsAreThoseOfTheReplicaThatNeedsMost) {
  config::RunConfig c;
  c.shard.strategy = Strategy::no_shard;
  for (const int world : {1, 2, 3, 5, 7, 8})
    for (int lanes = world; lanes <= 40; ++lanes) {
      SCOPED_TRACE(std::to_string(lanes) + " lanes, " + std::to_string(world) + " replicas");
      c.train.lanes = c.train.global_batch = lanes;
      expect_equal(c, {}, world);
    }
  c.shard.strategy = Strategy::hybrid_shard;
  c.shard.group = 4;
  c.train.lanes = 0;
  c.train.global_batch = 40;
  for (const int world : {4, 8, 12, 28, 40}) expect_equal(c, {}, world);
}

TEST(Memory, ActivationsAreThoseOfTheTransformer) {
  using config::Products, config::Scaling;
  struct Numbers {
    Precision type;
    Products products = Products::bf16;
    Scaling scaling = Scaling::delayed;
    bool keeps = false;
  };
  for (const auto& name : config::names_of<ActivationCheckpointing>())
    for (const auto& [type, products, scaling, keeps] :
         {Numbers{Precision::fp32}, Numbers{Precision::bf16}, Numbers{Precision::bf16, Products::fp8},
          Numbers{Precision::bf16, Products::fp8, Scaling::current},
          Numbers{Precision::bf16, Products::fp8, Scaling::delayed, true}}) {
      config::RunConfig c;
      c.shard.keep_across_micro_steps = keeps;
      if (keeps) c.shard.keep_gathered = "all";
      c.precision.products = products;
      c.fp8.scaling = scaling;
      c.train.activation_checkpointing = *config::choice_called<ActivationCheckpointing>(name);
      c.precision.parameters = type;
      c.train.micro_batch = 2;
      c.train.sequence = 512;
      const auto options = config::compute_options_of(c);
      const auto expect_planned = [&](const config::ModelShape& shape) {
        tensor::Arena arena;
        const model::Activations real(shape, options, 0, arena);
        const std::int64_t sums = 64 * (shape.adapters.dropout > 0 ? 3 : 2);  // loss, labels, first sample
        EXPECT_EQ(memory_of(c, shape, {}, 1, 1).activations, arena.planned_bytes() - sums) << name;
      };
      config::ModelShape shape = config::load_model("llama-124m");
      expect_planned(shape);
      if (products == Products::fp8) continue;
      shape.adapters.rank = 64;
      shape.adapters.on = {true, false, true, true, false, true, true};
      for (shape.adapters.dropout = 0; shape.adapters.dropout < 0.2; shape.adapters.dropout += 0.1)
        expect_planned(shape);
    }
}

}  // namespace
}  // namespace holdfast::launcher

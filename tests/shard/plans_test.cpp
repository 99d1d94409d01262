// The wire and memory plans against the formulas of the literature, on a model that no test could run; that
// they equal what a run counts is in sharded_weights_test.
#include <gtest/gtest.h>

#include "src/shard/memory_plan.hpp"
#include "src/shard/schedule.hpp"
#include "src/shard/wire_plan.hpp"

namespace holdfast::shard {
namespace {

using config::Strategy;

config::ModelShape llama2_7b() {
  config::ModelShape m;
  m.vocabulary = 32000;
  m.width = 4096;
  m.layers = 32;
  m.heads = m.kv_heads = 32;
  m.ffn = 11008;
  return m;
}
/// N and the parameters that are gathered a second time, for the backward pass: neither the embedding, which
/// it does not need, nor what the forward pass has left in the buffers: the head and the last blocks.
struct Sizes {
  double all = 0, again = 0;
};
Sizes sizes_of(const config::ModelShape& m, const Policy& policy) {
  Sizes out;
  for (const auto& t : config::tensors_of(m)) {
    const auto n = static_cast<double>(t.elements());
    out.all += n;
    const int ring = gather_buffers_of(m.layers, policy).ring;
    if (t.unit > 0 && t.unit <= m.layers - ring) out.again += n;
  }
  return out;
}

constexpr int S = 8, R = 16;
constexpr double within = 0.01;  // of the formula

/// Bytes that the ranks of one node send on average: the formulas are per GPU, and slices end unevenly.
template <class Count>
double mean_over_node(Strategy strategy, int replicas, const Policy& policy, int micro_batches_per_rank,
                      Count count) {
  double sum = 0;
  const int world = S * replicas;
  for (int rank = 0; rank < S; ++rank) {
    const Layout layout = layout_of(llama2_7b(), mesh_of(strategy, S, S, world, rank));
    const LanePlan lanes(world * micro_batches_per_rank, layout.mesh.replicas, layout.mesh.replicas,
                         layout.mesh.group);
    sum += static_cast<double>(count(wire_plan(layout, lanes, policy)));
  }
  return sum / S;
}

/// `formula` counts whole collectives; a ring sends (x - 1) / x of them.
void expect_close(double bytes, double formula) {
  EXPECT_NEAR(bytes / formula, 1.0, within) << bytes << " bytes, formula " << formula;
}

TEST(WirePlan, AgreesWithTheFormulasForLlama2OfSevenBillion) {
  for (const DType reduce : {DType::fp32, DType::bf16}) {
    Policy policy;
    policy.parameters = DType::bf16;
    policy.reduce = reduce;
    const double bp = 2, br = static_cast<double>(tensor::bytes_of(reduce)), nodes = 4;
    const auto [n, again] = sizes_of(llama2_7b(), policy);
    constexpr double inner = (S - 1.0) / S, outer = (R - 1.0) / R, flat = (S * R - 1.0) / (S * R);
    const int k = 1;
    for (const Strategy strategy : {Strategy::hybrid_shard, Strategy::hfsdp}) {
      expect_close(
          mean_over_node(strategy, R, policy, k, [](const WirePlan& w) { return w.gathers.total(); }),
          k * (n + again) * bp * inner);
      expect_close(
          mean_over_node(strategy, R, policy, k, [](const WirePlan& w) { return w.reductions.total(); }),
          k * n * br * inner);
    }
    // The formulas of the literature gather everything twice: a little more than happens.
    const double twice = k * 2 * n * bp * inner,
                 once_where_it_stays = mean_over_node(Strategy::hfsdp, R, policy, k,
                                                      [](const WirePlan&w) { return w.gathers.total(); });
    EXPECT_LT(once_where_it_stays, twice);
    EXPECT_GT(once_where_it_stays, 0.94 * twice);
    // Replicas exchange partial sums in fp32, once per step; then HYBRID gathers sums, HFSDP new parameters.
    expect_close(mean_over_node(Strategy::hybrid_shard, R, policy, k,
                                [](const WirePlan& w) { return w.replicas.total(); }),
                 2 * (n / S) * nodes * outer);
    expect_close(
        mean_over_node(Strategy::hfsdp, R, policy, k, [](const WirePlan& w) { return w.replicas.total(); }),
        (n / S) * (nodes + bp) * outer);
    // One group, the whole world: FULL_SHARD gathers twice, SHARD_GRAD_OP once.
    expect_close(
        mean_over_node(Strategy::full_shard, R, policy, k, [](const WirePlan& w) { return w.total(); }),
        k * ((n + again) * bp + n * br) * flat);
    Policy keep = policy;
    keep.kept.assign(32, true);
    expect_close(
        mean_over_node(Strategy::shard_grad_op, R, keep, k, [](const WirePlan& w) { return w.total(); }),
        k * (n * bp + n * br) * flat);
    expect_close(
        mean_over_node(Strategy::no_shard, R, policy, k, [](const WirePlan& w) { return w.total(); }),
        2 * n * nodes * flat);
  }
}

TEST(WirePlan, MicroStepsRepeatTheShardGroupsWorkAndNotTheReplicas) {
  const Policy policy;
  auto plan = [&](int micro_batches) {
    const Layout layout = layout_of(llama2_7b(), mesh_of(Strategy::hybrid_shard, 2, 2, 4, 1));
    return wire_plan(layout, LanePlan(micro_batches, 2, 2, 2), policy);
  };
  const WirePlan one = plan(4), three = plan(12);
  EXPECT_EQ(three.reductions.ordered_reduce_scatter, 3 * one.reductions.ordered_reduce_scatter);
  EXPECT_EQ(three.replicas, one.replicas);
  EXPECT_LT(three.gathers.all_gather, 3 * one.gathers.all_gather) << "embedding and head are gathered once";
}

TEST(WirePlan, OneRankSendsNothing) {
  for (const auto strategy : {Strategy::no_shard, Strategy::full_shard, Strategy::hybrid_shard,
                              Strategy::shard_grad_op, Strategy::hfsdp}) {
    const Layout layout = layout_of(config::ModelShape{}, mesh_of(strategy, 1, 1, 1, 0));
    EXPECT_EQ(wire_plan(layout, LanePlan(12, 3, 1, 1), Policy{}).total(), 0);
  }
}

TEST(MemoryPlan, IsWhatTheStrategiesPromise) {
  const auto model = llama2_7b();
  const auto n = static_cast<double>(config::parameters_of(model));
  Policy policy;
  policy.parameters = policy.reduce = DType::bf16;
  auto plan = [&](Strategy strategy) {
    const Layout layout = layout_of(model, mesh_of(strategy, S, S, S * R, 3));
    return memory_plan(layout, LanePlan(S * R, layout.mesh.replicas, layout.mesh.replicas, layout.mesh.group),
                       policy);
  };
  const MemoryPlan hybrid = plan(Strategy::hybrid_shard), hfsdp = plan(Strategy::hfsdp),
                   full = plan(Strategy::full_shard), none = plan(Strategy::no_shard);
  EXPECT_NEAR(static_cast<double>(hybrid.parameters), 4 * n / S, 4 * n / S * within);
  EXPECT_NEAR(static_cast<double>(hfsdp.parameters), 4 * n / (S * R), 4 * n / (S * R) * within);
  EXPECT_NEAR(static_cast<double>(hfsdp.published), 2 * n / S, 2 * n / S * within);
  EXPECT_NEAR(static_cast<double>(full.parameters), 4 * n / (S * R), 4 * n / (S * R) * within);
  EXPECT_NEAR(static_cast<double>(full.accumulators), 4 * n / (S * R), 4 * n / (S * R) * within);
  EXPECT_NEAR(static_cast<double>(none.published), 2 * n, 2 * n * within);
  EXPECT_TRUE(none.gather_buffers.empty());
  EXPECT_EQ(hybrid.gather_buffers.size(), 4u) << "embedding, head, and two for the blocks";
  EXPECT_EQ(hybrid.published, 0);
}

TEST(MemoryPlan, SymmetricMemoryIsTheSameOnEveryRank) {
  config::ModelShape odd;
  odd.vocabulary = 97;
  odd.width = 20;
  odd.heads = 2;
  odd.kv_heads = 1;
  odd.ffn = 33;
  odd.layers = 3;
  for (const auto strategy : {Strategy::no_shard, Strategy::hybrid_shard, Strategy::hfsdp}) {
    const LanePlan lanes(36, 9, mesh_of(strategy, 2, 2, 4, 0).replicas, mesh_of(strategy, 2, 2, 4, 0).group);
    for (int rank = 1; rank < 4; ++rank)
      EXPECT_EQ(memory_plan(layout_of(odd, mesh_of(strategy, 2, 2, 4, rank)), lanes, {}).symmetric_bytes(),
                memory_plan(layout_of(odd, mesh_of(strategy, 2, 2, 4, 0)), lanes, {}).symmetric_bytes());
  }
}

}  // namespace
}  // namespace holdfast::shard

// Gathering and the canonical sum over real messages: every strategy that fits the world gives, bit for bit,
// what one rank alone gives. Sizes are odd, gradients cover 44 binades, and some are -0 in every leaf.
#include "src/shard/sharded_weights.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <bit>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/comm/mpi_communicator.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::shard {
namespace {

using config::Strategy;

config::ModelShape odd_shape() {
  config::ModelShape shape;
  shape.vocabulary = 97, shape.width = 20, shape.heads = 2, shape.kv_heads = 1, shape.ffn = 33,
  shape.layers = 3;
  return shape;
}
float number(std::uint64_t stream, std::int64_t element) {
  if (element % 97 == 0) return -0.f;
  const std::uint64_t h =
      mix64(mix64(stream + 1) ^ static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u);
  return std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x807fffff) |
                              static_cast<std::uint32_t>(97 + (h >> 40) % 44) << 23);
}

/// One rank's shards and everything they need.
struct Rank {
  Rank(const config::ModelShape& shape, const Mesh& mesh, int leaves, int lanes, comm::Communicator& world)
      : layout(layout_of(shape, mesh)),
        plan(leaves, lanes, mesh.replicas, mesh.group),
        group(world.split(mesh.replica(), mesh.member())),
        replicas(world.split(mesh.member(), mesh.replica())),
        weights(layout, plan, *group, *replicas, *kernels, stream, arena) {
    arena.commit();
    for (std::size_t t = 0; t < layout.slices.size(); ++t)
      for (std::int64_t i = 0; i < layout.slices[t].slice.count; ++i)
        weights.parameters()[layout.slices[t].offset + i] =
            number(1000 + t, layout.slices[t].slice.first + i);
  }
  /// Walks the units as a leaf does; gradients are pure functions of (leaf, tensor, element).
  void step() {
    const int last = static_cast<int>(layout.unit_elements.size()) - 1, replica = layout.mesh.replica();
    weights.begin_step();
    for (int i = 0; i < plan.micro_steps(replica); ++i) {
      weights.begin_micro_step(i);
      for (int unit = 0; unit <= last; ++unit) check_weights(unit);
      for (int unit = last; unit >= 0; --unit) {
        if (unit > 0) check_weights(unit);
        for (std::size_t t = 0; t < layout.slices.size(); ++t)
          if (layout.slices[t].unit == unit)
            for (std::int64_t e = 0; e < layout.slices[t].elements; ++e)
              weights.gradient(static_cast<int>(t))[e] = number(
                  static_cast<std::uint64_t>(plan.leaf(replica, i, layout.mesh.member())) * 100 + t, e);
        weights.reduce(unit);
      }
    }
    weights.finish_step();
  }
  void check_weights(int unit) {
    weights.acquire(unit);
    for (std::size_t t = 0; t < layout.slices.size(); ++t)
      for (std::int64_t e = 0; layout.slices[t].unit == unit && e < layout.slices[t].elements; ++e)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(weights.weight(static_cast<int>(t))[e]),
                  std::bit_cast<std::uint32_t>(number(1000 + t, e)));
    weights.release(unit);
  }

  Layout layout;
  LanePlan plan;
  std::unique_ptr<comm::Communicator> group, replicas;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena arena;
  ShardedWeights weights;
};

bool fits(int leaves, int lanes, int replicas, int group) {
  try {
    LanePlan(leaves, lanes, replicas, group);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ShardedWeights, EveryLayoutGivesWhatOneRankAloneGives) {
  int size = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::unique_ptr<comm::Communicator> world = std::make_unique<comm::SoloCommunicator>();
  if (size > 1) {
    MPI_Comm all = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    world = std::make_unique<comm::MpiCommunicator>(all, "the world", std::chrono::seconds(60));
  }
  const auto shape = odd_shape();
  int tried = 0;
  struct Sum {
    int leaves, lanes;
  };
  for (const auto [leaves, lanes] : {Sum{24, 8}, Sum{12, 12}, Sum{24, 4}, Sum{36, 6}}) {
    comm::SoloCommunicator alone;
    Rank reference(shape, mesh_of(Strategy::no_shard, 0, 1, 1, 0), leaves, lanes, alone);
    reference.step();
    for (int group = 1; group <= size; ++group) {
      if (size % group != 0 || !fits(leaves, lanes, size / group, group)) continue;
      ++tried;
      Rank here(shape, mesh_of(Strategy::hybrid_shard, group, 1, size, rank), leaves, lanes, *world);
      here.step();
      here.step();  // nothing is left over from the step before
      for (std::size_t t = 0; t < here.layout.slices.size(); ++t) {
        const StoredSlice &part = here.layout.slices[t], &whole = reference.layout.slices[t];
        for (std::int64_t i = 0; i < part.slice.count; ++i)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(here.weights.gradients()[part.offset + i]),
                    std::bit_cast<std::uint32_t>(
                        reference.weights.gradients()[whole.offset + part.slice.first + i]))
              << "tensor " << t << ", group " << group << ", leaves " << leaves << ", lanes " << lanes;
      }
    }
  }
  EXPECT_GE(tried, 4);
}

}  // namespace
}  // namespace holdfast::shard

#include "src/shard/layout.hpp"

#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {
namespace {

using config::Strategy;

TEST(Mesh, StrategiesCutTheWorld) {
  EXPECT_EQ(mesh_of(Strategy::no_shard, 0, 4, 8, 5).replicas, 8);
  EXPECT_EQ(mesh_of(Strategy::full_shard, 0, 4, 8, 5).group, 8);
  const Mesh hybrid = mesh_of(Strategy::hybrid_shard, 0, 4, 8, 5);
  EXPECT_EQ(hybrid.group, 4);
  EXPECT_EQ(hybrid.replica(), 1);
  EXPECT_EQ(hybrid.member(), 1);
  EXPECT_EQ(mesh_of(Strategy::hybrid_shard, 2, 4, 8, 5).group, 2);
  EXPECT_EQ(mesh_of(Strategy::hybrid_shard, 0, 8, 2, 1).group, 2) << "a world smaller than a node";
  EXPECT_EQ(mesh_of(Strategy::shard_grad_op, 0, 4, 8, 5).group, 8);
  EXPECT_EQ(mesh_of(Strategy::hfsdp, 0, 4, 8, 5).group, 4);
  EXPECT_TRUE(mesh_of(Strategy::hfsdp, 0, 4, 8, 5).split_optimizer);
  EXPECT_FALSE(mesh_of(Strategy::hfsdp, 8, 4, 8, 5).split_optimizer) << "one replica has nothing to split";
  EXPECT_FALSE(hybrid.split_optimizer);
}

TEST(Mesh, RefusesAGroupThatDoesNotDivideTheWorld) {
  try {
    mesh_of(Strategy::hybrid_shard, 3, 4, 8, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_NE(std::string(error.what()).find("shard groups of 3"), std::string::npos);
  }
}

/// Every element of every tensor, counted.
std::vector<std::vector<int>> cover(const config::ModelShape& shape, Strategy strategy, int world, int group,
                                    bool owned) {
  std::vector<std::vector<int>> seen;
  for (const auto& spec : config::tensors_of(shape)) seen.emplace_back(as_size(spec.elements()), 0);
  for (int rank = 0; rank < world; ++rank) {
    const Layout layout = layout_of(shape, mesh_of(strategy, group, group, world, rank));
    std::int64_t end = 0;
    for (const Piece& piece : owned ? layout.owned : layout.held) {
      EXPECT_GT(piece.count, 0);
      EXPECT_GE(piece.offset, end) << "pieces overlap in the arena";
      end = piece.offset + piece.count;
      for (std::int64_t i = 0; i < piece.count; ++i) ++seen[piece.tensor][piece.first + i];
    }
    EXPECT_LE(end, layout.arena_elements);
    EXPECT_EQ(layout.arena_elements % slice_alignment, 0);
  }
  return seen;
}

config::ModelShape odd_shape(bool tied) {  // sizes that are not multiples of anything, some below a group
  config::ModelShape odd;
  odd.vocabulary = 97;
  odd.width = 20;
  odd.heads = 2;
  odd.kv_heads = 1;
  odd.ffn = 33;
  odd.layers = 2;
  odd.tied_embeddings = tied;
  return odd;
}

TEST(Layout, EveryElementIsOwnedOnceAndOptimizedByEveryReplicaOrOneOfThem) {
  for (const auto strategy : {Strategy::no_shard, Strategy::full_shard, Strategy::hybrid_shard,
                              Strategy::shard_grad_op, Strategy::hfsdp})
    for (int world : {1, 2, 4, 6, 8}) {
      const auto odd = odd_shape(world == 4);
      const Mesh mesh = mesh_of(strategy, 2 - world % 2, 1, world, 0);
      for (const auto& tensor : cover(odd, strategy, world, 2 - world % 2, true))
        for (int n : tensor) ASSERT_EQ(n, 1);
      for (const auto& tensor : cover(odd, strategy, world, 2 - world % 2, false))
        for (int n : tensor) ASSERT_EQ(n, mesh.split_optimizer ? 1 : mesh.replicas);
    }
}

TEST(Layout, AllRanksAgreeOnWhereThingsLie) {
  for (const auto strategy : {Strategy::hybrid_shard, Strategy::hfsdp}) {
    const Layout first = layout_of(odd_shape(false), mesh_of(strategy, 3, 1, 6, 0));
    for (int rank = 1; rank < 6; ++rank) {
      const Layout other = layout_of(odd_shape(false), mesh_of(strategy, 3, 1, 6, rank));
      EXPECT_EQ(other.slice_elements, first.slice_elements);
      EXPECT_EQ(other.arena_elements, first.arena_elements);
      EXPECT_EQ(other.unit_elements, first.unit_elements);
      for (std::size_t t = 0; t < first.slices.size(); ++t) {
        EXPECT_EQ(other.slices[t].offset, first.slices[t].offset);
        EXPECT_EQ(other.slices[t].optimizer_offset, first.slices[t].optimizer_offset);
        EXPECT_EQ(other.slices[t].unit_offset, first.slices[t].unit_offset);
      }
    }
  }
}

TEST(Layout, SlicesDoNotDependOnTheNumberOfReplicasUnlessTheyShareOutTheState) {
  for (int replicas : {1, 2, 3, 5}) {
    const Layout two = layout_of(odd_shape(false), mesh_of(Strategy::hybrid_shard, 2, 1, 4, 1)),
                 other = layout_of(odd_shape(false), mesh_of(Strategy::hybrid_shard, 2, 1, 2 * replicas, 1));
    EXPECT_EQ(other.held, two.held) << replicas;
    EXPECT_EQ(other.arena_elements, two.arena_elements) << replicas;
  }
}

/// Issue 39: NCCL gathers whole parts.
TEST(Layout, ReplicasHaveRoomForWholePartsOfAUnitsSums) {
  for (const auto strategy : {Strategy::no_shard, Strategy::hybrid_shard})
    for (const int replicas : {1, 2, 3, 5, 124}) {
      const int group = strategy == Strategy::no_shard ? 1 : 2;
      const Layout layout = layout_of(odd_shape(false), mesh_of(strategy, group, 1, group * replicas, 0));
      std::int64_t end = 0;  // of the unit below: those above are gathered before
      for (int unit = 0; unit < layout.units(); ++unit) {
        const Slice& sums = layout.unit_slices[unit];
        EXPECT_EQ(sums.first, end);
        end = sums.first + sums.count;
        EXPECT_LE(sums.first + slice_stride(sums.count, replicas) * replicas, layout.slice_elements);
      }
      EXPECT_LE(layout.slice_elements - end, slice_alignment * replicas);
      EXPECT_TRUE(replicas > 1 || layout.slice_elements == end);
    }
}

TEST(Layout, AReplicasPartLiesInsideItsSlice) {
  for (int rank = 0; rank < 8; ++rank) {
    const Layout layout = layout_of(odd_shape(false), mesh_of(Strategy::hfsdp, 2, 1, 8, rank));
    EXPECT_EQ(layout.held, layout.owned);
    for (const StoredSlice& s : layout.slices) {
      EXPECT_EQ(s.stride, 4 * s.part);
      EXPECT_EQ(s.owned, s.optimized);
      EXPECT_GE(s.owned.first, s.slice.first);
      EXPECT_LE(s.owned.first + s.owned.count, s.slice.first + s.slice.count);
      EXPECT_LE(s.owned.count, s.part);
    }
  }
}

TEST(Layout, PaddingOfALargeModelIsSmall) {
  config::ModelShape llama;  // Llama-2-7B
  llama.vocabulary = 32000, llama.width = 4096, llama.layers = 32, llama.heads = llama.kv_heads = 32,
  llama.ffn = 11008;
  const auto n = static_cast<double>(config::parameters_of(llama));
  const Layout eight = layout_of(llama, mesh_of(Strategy::hybrid_shard, 8, 8, 128, 5));
  EXPECT_LT(static_cast<double>(eight.slice_elements) * 8 / n, 1.0005);
  const Layout hfsdp = layout_of(llama, mesh_of(Strategy::hfsdp, 8, 8, 128, 5));
  EXPECT_EQ(hfsdp.arena_elements * 16, hfsdp.slice_elements) << "1/128 of the model's optimizer state";
}

TEST(Layout, LogicalIndexIsStoredIndexMinusTheSizesOfThePartsBefore) {
  const config::ModelShape tiny;
  const Layout layout = layout_of(tiny, mesh_of(Strategy::no_shard, 0, 1, 1, 0));
  const auto specs = config::tensors_of(tiny);
  // q|k|v of layer 0 is one stored tensor: three pieces, back to back, each from its own element 0
  auto piece = [&](const std::string& name) {
    for (const Piece& p : layout.held)
      if (specs[p.tensor].name == name) return p;
    return Piece{};
  };
  const Piece q = piece("model.layers.0.self_attn.q_proj.weight"),
              k = piece("model.layers.0.self_attn.k_proj.weight"),
              v = piece("model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(q.first, 0);
  EXPECT_EQ(k.first, 0);
  EXPECT_EQ(k.offset, q.offset + q.count);
  EXPECT_EQ(v.offset, k.offset + k.count);
}

TEST(Layout, GatheredTensorsDoNotOverlapAndAreAligned) {
  const config::ModelShape tiny;
  const Layout layout = layout_of(tiny, mesh_of(Strategy::full_shard, 0, 1, 4, 2));
  std::vector<std::int64_t> end(layout.unit_elements.size(), 0);
  for (const StoredSlice& s : layout.slices) {
    auto unit = as_size(s.unit);
    EXPECT_EQ(s.unit_offset % 512, 0) << "1 KiB in bf16";
    EXPECT_GE(s.unit_offset, end[unit]);
    end[unit] = s.unit_offset + 4 * s.stride;
    EXPECT_GE(4 * s.stride, s.elements);
    EXPECT_LE(end[unit], layout.unit_elements[unit]);
  }
}

}  // namespace
}  // namespace holdfast::shard

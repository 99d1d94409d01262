#include "src/shard/layout.hpp"

#include <gtest/gtest.h>

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
  for (const auto& spec : config::tensors_of(shape))
    seen.emplace_back(static_cast<std::size_t>(spec.elements()), 0);
  for (int rank = 0; rank < world; ++rank) {
    const Layout layout = layout_of(shape, mesh_of(strategy, group, group, world, rank));
    std::int64_t end = 0;
    for (const Piece& piece : owned ? layout.owned : layout.held) {
      EXPECT_GT(piece.count, 0);
      EXPECT_GE(piece.offset, end) << "pieces overlap in the arena";
      end = piece.offset + piece.count;
      for (std::int64_t i = 0; i < piece.count; ++i)
        ++seen[static_cast<std::size_t>(piece.tensor)][static_cast<std::size_t>(piece.first + i)];
    }
    EXPECT_LE(end, layout.arena_elements);
    EXPECT_EQ(layout.arena_elements % (layout.mesh.replicas * slice_alignment), 0);
  }
  return seen;
}

TEST(Layout, EveryElementIsOwnedOnceAndHeldByEveryReplica) {
  config::ModelShape odd;  // sizes that are not multiples of anything
  odd.vocabulary = 97, odd.width = 20, odd.heads = 2, odd.kv_heads = 1, odd.ffn = 33, odd.layers = 2;
  for (const auto strategy : {Strategy::no_shard, Strategy::full_shard, Strategy::hybrid_shard})
    for (int world : {1, 2, 4, 6, 8}) {
      const int replicas = mesh_of(strategy, 2 - world % 2, 1, world, 0).replicas;
      for (const auto& tensor : cover(odd, strategy, world, 2 - world % 2, true))
        for (int n : tensor) ASSERT_EQ(n, 1);
      for (const auto& tensor : cover(odd, strategy, world, 2 - world % 2, false))
        for (int n : tensor) ASSERT_EQ(n, replicas);
    }
}

TEST(Layout, LogicalIndexIsStoredIndexMinusTheSizesOfThePartsBefore) {
  const config::ModelShape tiny;
  const Layout layout = layout_of(tiny, mesh_of(Strategy::no_shard, 0, 1, 1, 0));
  const auto specs = config::tensors_of(tiny);
  // q|k|v of layer 0 is one stored tensor: three pieces, back to back, each from its own element 0
  auto piece = [&](const std::string& name) {
    for (const Piece& p : layout.held)
      if (specs[static_cast<std::size_t>(p.tensor)].name == name) return p;
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
    auto unit = static_cast<std::size_t>(s.unit);
    EXPECT_EQ(s.unit_offset % 256, 0);
    EXPECT_GE(s.unit_offset, end[unit]);
    end[unit] = s.unit_offset + 4 * slice_stride(s.elements, 4);
    EXPECT_LE(end[unit], layout.unit_elements[unit]);
  }
}

}  // namespace
}  // namespace holdfast::shard

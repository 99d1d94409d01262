#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/optim/schedule.hpp"
#include "src/optim/sharded_adamw.hpp"

namespace holdfast::optim {
namespace {

const std::vector<config::TensorSpec>& tensors() {
  static const auto out = config::tensors_of({});
  return out;
}

StepUpdate base_update(const config::Optim& o, std::int64_t step, double squares, std::int64_t valid) {
  return step_update(o, tensor_groups(o, tensors()), step, 100, squares, valid);
}

TEST(StepUpdate, ScalesBySumOfTokensAndClipsTheGlobalNorm) {
  config::Optim o;
  o.clip_norm = 1.0;
  const auto calm = base_update(o, 0, 0.25 * 64 * 64, 64);  // norm of the mean gradient: 0.5
  EXPECT_DOUBLE_EQ(calm.gradient_norm, 0.5);
  EXPECT_FLOAT_EQ(calm.scalars[0].gradient_scale, 1.f / 64);
  const auto wild = base_update(o, 0, 16.0 * 64 * 64, 64);
  EXPECT_DOUBLE_EQ(wild.gradient_norm, 4.0);
  EXPECT_FLOAT_EQ(wild.scalars[0].gradient_scale, 1.f / 256);
  o.clip_norm = 0;
  EXPECT_FLOAT_EQ(base_update(o, 0, 16.0 * 64 * 64, 64).scalars[0].gradient_scale, 1.f / 64);
}

TEST(StepUpdate, WithoutValidTokensNothingIsUpdated) { EXPECT_FALSE(base_update({}, 3, 0, 0).update); }

TEST(StepUpdate, EveryGroupHasItsRateAndItsDecay) {
  config::Optim o;
  o.warmup_steps = 0;
  o.weight_decay = 0.1;
  o.groups = {"*norm* weight_decay=0.02", "*embed* lr_scale=0.5", "lm_head* lr_scale=4 weight_decay=0"};
  const auto d = base_update(o, 7, 64, 64);
  const auto lr = learning_rate(o, 7, 100);
  EXPECT_EQ(d.lr, lr);
  const auto expect = [&](std::size_t group, double rate, double decay) {
    EXPECT_EQ(d.scalars[group].lr, static_cast<float>(rate)) << group;
    EXPECT_EQ(d.scalars[group].lr_decay, static_cast<float>(rate * decay)) << group;
    EXPECT_EQ(d.scalars[group].gradient_scale, d.scalars[0].gradient_scale);
    EXPECT_EQ(d.scalars[group].inverse_bias2, d.scalars[0].inverse_bias2);
  };
  expect(0, lr, 0.1);
  expect(1, lr, 0.02);
  expect(2, 0.5 * lr, 0.1);
  expect(3, 4 * lr, 0);
}

/// One rank, its optimizer and its arenas.
struct Fixture {
  config::ModelShape shape;
  shard::Layout layout;
  TensorGroups groups;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena moments_arena, arena;
  ShardedAdamW adamw;
  std::vector<float> parameters, gradients;

  Fixture(const config::Optim& o, shard::Mesh mesh, kernels::DType moments = kernels::DType::fp32)
      : layout(shard::layout_of(shape, mesh)),
        groups(tensor_groups(o, tensors())),
        adamw(layout, groups, moments, *kernels, stream, moments_arena, arena),
        parameters(as_size(layout.arena_elements), 1.f),
        gradients(parameters.size(), 2.f) {
    moments_arena.commit(), arena.commit();
  }
  StateArenas arenas() { return {parameters.data(), adamw.exp_avg(), adamw.exp_avg_sq()}; }
  void update(const StepUpdate& step) { adamw.update(arenas(), gradients.data(), step, arenas()); }
  float first(const shard::Piece& piece) const { return parameters[piece.offset]; }
  float last(const shard::Piece& piece) const { return parameters[piece.offset + piece.count - 1]; }
};

shard::Mesh no_shard(int world, int rank) {
  return shard::mesh_of(config::Strategy::no_shard, 0, 1, world, rank);
}

config::Optim plain() {
  config::Optim o;
  o.warmup_steps = 0, o.schedule = config::Schedule::constant, o.lr = 0.1, o.weight_decay = 0.5,
  o.clip_norm = 0;
  return o;
}

TEST(ShardedAdamW, UpdatesWhatIsHeldAndCountsWhatIsOwned) {
  const auto o = plain();
  Fixture f(o, no_shard(2, 1));
  std::int64_t owned = 0;
  for (const auto& piece : f.layout.owned) owned += piece.count;
  EXPECT_DOUBLE_EQ(f.adamw.squares(f.gradients.data()).value(), 4.0 * static_cast<double>(owned));
  f.update(base_update(o, 0, 0, 1));
  for (const auto& piece : f.layout.held) {  // first step: p - lr * wd * p - lr * g / |g|
    const bool matrix = tensors()[piece.tensor].kind == config::TensorKind::matrix;
    const float expected = matrix ? 0.85f : 0.9f;
    EXPECT_NEAR(f.first(piece), expected, 1e-5);
    EXPECT_NEAR(f.last(piece), expected, 1e-5);
  }
}

TEST(ShardedAdamW, WritesElsewhereWhatItWouldWriteInPlace) {
  const auto o = plain();
  for (const auto moments : {kernels::DType::fp32, kernels::DType::bf16}) {
    Fixture there(o, no_shard(1, 0), moments), here(o, no_shard(1, 0), moments);
    here.update(base_update(o, 0, 0, 1)), there.update(base_update(o, 0, 0, 1));
    const std::vector<float> before = there.parameters;
    const auto bytes = as_size(there.layout.arena_elements * tensor::bytes_of(moments));
    std::vector<float> p(before.size());
    std::vector<std::byte> m(bytes), v(bytes);
    const StateArenas to{p.data(), m.data(), v.data()};
    const auto same = [&] {
      return p == here.parameters && std::memcmp(m.data(), here.adamw.exp_avg(), bytes) == 0 &&
             std::memcmp(v.data(), here.adamw.exp_avg_sq(), bytes) == 0;
    };
    const StepUpdate second = base_update(o, 1, 0, 1);
    here.update(second);
    EXPECT_FALSE(same());
    there.adamw.update(there.arenas(), there.gradients.data(), second, to);
    EXPECT_TRUE(same());
    EXPECT_EQ(there.parameters, before);
    // A step without a valid token: the state as it was, also where it goes to.
    StepUpdate nothing = second;
    nothing.update = false;
    std::ranges::fill(p, 7.f);
    here.update(nothing);
    here.adamw.update(here.arenas(), here.gradients.data(), nothing, to);
    EXPECT_TRUE(same());
  }
}

TEST(ShardedAdamW, GroupsChangeTheirTensorsOnly) {
  auto o = plain();
  Fixture base(o, no_shard(1, 0));
  base.update(base_update(o, 0, 0, 1));
  o.groups = {"*norm* weight_decay=1", "*embed* lr_scale=0.5"};
  Fixture f(o, no_shard(1, 0));
  f.update(base_update(o, 0, 0, 1));
  int norms = 0, embeddings = 0;
  for (const auto& piece : f.layout.held) {
    const auto& name = tensors()[piece.tensor].name;
    if (name.find("norm") != std::string::npos) {
      ++norms;
      EXPECT_NEAR(f.last(piece), 0.8f, 1e-5) << name;
    } else if (name.find("embed") != std::string::npos) {
      ++embeddings;
      EXPECT_NEAR(f.last(piece), 0.925f, 1e-5) << name;
    } else {
      EXPECT_EQ(f.last(piece), base.last(piece)) << name;
    }
  }
  EXPECT_EQ(norms, 5);
  EXPECT_EQ(embeddings, 1);
}

TEST(ShardedAdamW, NarrowMomentsTakeHalfTheRoomAndStayNear) {
  const auto o = plain();
  Fixture wide(o, no_shard(1, 0)), narrow(o, no_shard(1, 0), kernels::DType::bf16);
  EXPECT_EQ(wide.moments_arena.planned_bytes(), 2 * 4 * wide.layout.arena_elements);
  EXPECT_EQ(narrow.moments_arena.planned_bytes(), 2 * 2 * wide.layout.arena_elements);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < wide.gradients.size(); ++i)
      wide.gradients[i] = narrow.gradients[i] =
          std::sin(static_cast<float>(i) + 0.7f * static_cast<float>(step));
    const auto d = base_update(o, step, 0, 1);
    wide.update(d);
    narrow.update(d);
    if (step == 0) {
      EXPECT_EQ(wide.parameters, narrow.parameters) << "moments are used before they are rounded";
    }
  }
  EXPECT_NE(wide.parameters, narrow.parameters);
  for (const auto& piece : wide.layout.held)
    EXPECT_NEAR(wide.last(piece), narrow.last(piece), 0.1 * 0.1) << "a tenth of a step";
}

TEST(ShardedAdamW, ASliceIsUpdatedAsItsTensorIsElsewhere) {
  auto o = plain();
  o.groups = {"*.v_proj.* lr_scale=3", "*norm* weight_decay=0.25"};
  Fixture whole(o, no_shard(1, 0));
  std::vector<std::vector<float>> tensors_after(tensors().size());
  const auto value = [](int tensor, std::int64_t element) {
    return std::sin(0.1f * static_cast<float>(tensor) + 0.01f * static_cast<float>(element));
  };
  const auto run = [&](Fixture& f) {
    for (const auto& piece : f.layout.held)
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const auto at = as_size(piece.offset + i);
        f.parameters[at] = value(piece.tensor, piece.first + i);
        f.gradients[at] = value(piece.tensor + 100, piece.first + i);
      }
    f.update(base_update(o, 0, 0, 1));
  };
  run(whole);
  for (const auto& piece : whole.layout.held) {
    ASSERT_EQ(piece.first, 0);
    tensors_after[piece.tensor].assign(whole.parameters.begin() + piece.offset,
                                       whole.parameters.begin() + piece.offset + piece.count);
  }
  for (const auto strategy :
       {config::Strategy::full_shard, config::Strategy::hybrid_shard, config::Strategy::hfsdp})
    for (int rank = 0; rank < 6; ++rank) {
      Fixture part(o, shard::mesh_of(strategy, strategy == config::Strategy::full_shard ? 0 : 3, 1, 6, rank));
      run(part);
      for (const auto& piece : part.layout.held)
        ASSERT_EQ(std::memcmp(part.parameters.data() + piece.offset,
                              tensors_after[piece.tensor].data() + piece.first,
                              as_size(piece.count) * sizeof(float)),
                  0);
    }
}

}  // namespace
}  // namespace holdfast::optim

// The promise of the numerics: one digest for every strategy and world size, loss for loss. And what was
// planned is what is there: memory, bytes on the wire, and no allocation after the first step.
#include <regex>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class Equality : public TrainingFixture {
 protected:
  static std::vector<std::int64_t> numbers(const std::string& text, const std::string& pattern) {
    std::smatch match;
    std::vector<std::int64_t> out;
    if (std::regex_search(text, match, std::regex(pattern)))
      for (std::size_t i = 1; i < match.size(); ++i) out.push_back(std::stoll(match[i]));
    return out;
  }
  /// Of a run of the fixture's model.
  void expect_as_planned(const Finished& done, const std::string& dir, int world) const {
    const auto planned = numbers(done.err, "each rank plans (\\d+) bytes of memory .* sends (\\d+) bytes");
    const auto used = numbers(done.err, "uses (\\d+) bytes of memory of (\\d+) planned");
    ASSERT_EQ(planned.size(), 2u) << done.err;
    EXPECT_EQ(used, (std::vector<std::int64_t>{planned[0], planned[0]})) << dir;
    const auto steps = metrics(dir);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i]["wire_bytes"], planned[1]) << dir << " step " << i + 1;
      EXPECT_EQ(steps[i]["allocations"], 0) << dir << " step " << i + 1;
      // 6 N + 12 L H Q T = 6 * 27296 + 12 * 2 * 4 * 8 * 32
      const double needed = steps[i]["tokens_per_s"].get<double>() * 188352, peak = world * 1e9;
      EXPECT_NEAR(steps[i]["mfu"].get<double>(), needed / peak, 1e-9 * needed / peak);
      EXPECT_GT(steps[i]["host_peak_bytes"].get<double>(), planned[0]);
      EXPECT_GE(steps[i]["data_wait_s"].get<double>(), 0);
      EXPECT_LT(steps[i]["data_wait_s"].get<double>(), steps[i]["step_s"].get<double>());
    }
  }
  static constexpr const char* never_saves = "checkpoint.every=0";  // a save may allocate
  static constexpr const char* peak_is_known = "train.peak_tflops=0.001";
};

/// The part of scripts/bits_matrix.sh that there is always time for: every strategy, mode of activation
/// checkpointing, prefetch depth and way of keeping units, in both types.
TEST_F(Equality, DigestAndLossesAreTheSameInEveryWorldAndStrategy) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {1, {"shard.strategy=no_shard", "train.activation_checkpointing=selective"}},
      {1, {"shard.strategy=full_shard", "train.activation_checkpointing=full"}},
      {2, {"shard.strategy=no_shard", "train.activation_checkpointing=attention"}},
      {2, {"shard.strategy=full_shard", "shard.prefetch_forward=0", "shard.prefetch_backward=3"}},
      {2,
       {"shard.strategy=shard_grad_op", "train.activation_checkpointing=full",
        "shard.keep_across_micro_steps=true"}},
      {2, {"shard.strategy=hfsdp", "shard.group=1"}},
      {2, {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=selective"}},
      {4, {"shard.strategy=no_shard"}},
      {4, {"shard.strategy=full_shard", "shard.prefetch_forward=2", "shard.prefetch_backward=0"}},
      {4, {"shard.strategy=full_shard", "shard.keep_gathered=1", "shard.gathered_limit=1"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2", "train.activation_checkpointing=full"}},
      {4, {"shard.strategy=hfsdp", "shard.group=2", "shard.prefetch_forward=3"}},
      {8, {"shard.strategy=hybrid_shard", "shard.group=4", "train.activation_checkpointing=attention"}},
      {8, {"shard.strategy=hfsdp", "shard.group=2", "shard.keep_gathered=all"}},
      {8, {"shard.strategy=shard_grad_op"}},
  };
  // In the wider type every third layout: what differs between layouts is order, not the type.
  for (const std::string type : {"fp32", "bf16"}) {
    const Sets precision = {"precision.parameters=" + type, "precision.reduce=" + type,
                            "precision.moments=" + type, never_saves, peak_is_known};
    const Finished alone = train(1, type, precision);
    ASSERT_EQ(alone.status, 0) << alone.err;
    const auto curve = losses(type);
    ASSERT_EQ(curve.size(), 10u);
    EXPECT_LT(curve.back(), curve.front() - 0.3) << "it should learn something";
    for (std::size_t run = 0; run < layouts.size(); run += type == "fp32" ? 3 : 1) {
      const auto& [world, layout] = layouts[run];
      const std::string dir = type + std::to_string(run);
      Sets sets = precision;
      sets.insert(sets.end(), layout.begin(), layout.end());
      const Finished done = train(world, dir, sets);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(type)) << ::testing::PrintToString(sets) << " on " << world;
      EXPECT_EQ(losses(dir), curve) << ::testing::PrintToString(sets) << " on " << world;
      expect_as_planned(done, dir, world);
    }
  }
  EXPECT_NE(digest("fp32"), digest("bf16"));
}

TEST_F(Equality, HoldsForMicroBatchesThatAreNotAPowerOfTwoAndATiedModel) {
  write("model.toml",
        "[model]\nname = \"odd\"\nvocabulary = 128\nwidth = 36\nlayers = 1\nheads = 3\nkv_heads = 1\nffn = "
        "50\nmax_sequence = 64\ntied_embeddings = true\n");
  const Sets shape = {"train.global_batch=12", "train.micro_batch=1", "train.lanes=6", "train.steps=4",
                      "train.sequence=21"};
  auto with = [&](Sets sets) { return sets.insert(sets.end(), shape.begin(), shape.end()), sets; };
  ASSERT_EQ(train(1, "alone", shape).status, 0);
  for (const auto& [world, strategy, group] :
       {std::tuple{3, "full_shard", 0}, {3, "no_shard", 0}, {4, "hybrid_shard", 2}, {6, "hybrid_shard", 2}}) {
    const std::string dir = strategy + std::to_string(world);
    const Finished done =
        train(world, dir,
              with({std::string("shard.strategy=") + strategy, "shard.group=" + std::to_string(group)}));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(digest(dir), digest("alone")) << dir;
  }
}

TEST_F(Equality, ByDefaultTheLayoutDoesNotMatter) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {2, {"shard.strategy=full_shard"}},
      {3, {"shard.strategy=no_shard"}},                       // 5, 5 and 6 micro-batches
      {6, {"shard.strategy=hybrid_shard", "shard.group=2"}},  // 4, 6 and 6 micro-batches
      {8, {"shard.strategy=hfsdp", "shard.group=2"}},
  };
  for (const std::string type : {"fp32", "bf16"}) {
    const Sets open = {"train.lanes=0", "train.steps=4", "precision.parameters=" + type, never_saves,
                       peak_is_known};
    const auto with = [&](Sets sets) { return sets.insert(sets.end(), open.begin(), open.end()), sets; };
    const Finished alone = train(1, type, with({"shard.strategy=no_shard"}));
    ASSERT_EQ(alone.status, 0) << alone.err;
    expect_as_planned(alone, type, 1);
    for (std::size_t run = 0; run < layouts.size(); run += type == "fp32" ? 3 : 1) {
      const auto& [world, layout] = layouts[run];
      const std::string dir = type + std::to_string(run);
      const Finished done = train(world, dir, with(layout));
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(type)) << ::testing::PrintToString(layout) << " on " << world;
      EXPECT_EQ(losses(dir), losses(type));
      expect_as_planned(done, dir, world);
    }
  }
}

TEST_F(Equality, OtherLanesGiveAnotherDigest) {  // the test above can fail
  ASSERT_EQ(train(1, "eight").status, 0);
  ASSERT_EQ(train(1, "two", {"train.lanes=2"}).status, 0);
  EXPECT_NE(digest("eight"), digest("two"));
}

TEST_F(Equality, RepeatedRunsAreEqualAndAnotherSeedIsNot) {
  ASSERT_EQ(train(2, "first").status, 0);
  ASSERT_EQ(train(2, "second").status, 0);
  ASSERT_EQ(train(2, "seed", {"train.seed=2"}).status, 0);
  ASSERT_EQ(train(2, "order", {"data.shuffle_seed=2"}).status, 0);
  EXPECT_EQ(digest("first"), digest("second"));
  EXPECT_NE(digest("first"), digest("seed"));
  EXPECT_NE(digest("first"), digest("order"));
}

}  // namespace
}  // namespace holdfast::train

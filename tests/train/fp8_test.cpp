// Training with 8-bit products: the same bits in every layout and after every restart, and nearly the losses
// of bf16.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <regex>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class Fp8Training : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    write("model.toml",
          "[model]\nname = \"micro8\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = "
          "2\nffn = "
          "96\nmax_sequence = 64\n");
  }
  static Sets bf16(const Sets& more = {}) {
    Sets sets = {"precision.parameters=bf16", "precision.reduce=bf16"};
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
  static Sets kept(Sets sets) {
    sets.insert(sets.end(), {"shard.keep_gathered=all", "shard.keep_across_micro_steps=true"});
    return sets;
  }
  static Sets fp8(const std::string& scaling, const Sets& more = {}) {
    Sets sets = bf16({"precision.products=fp8", "fp8.scaling=" + scaling, "fp8.history=3"});
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
};

TEST_F(Fp8Training, DigestAndLossesAreTheSameInEveryWorldAndStrategy) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {1, {"shard.strategy=full_shard", "train.activation_checkpointing=full"}},
      {2, {"shard.strategy=no_shard", "train.activation_checkpointing=attention"}},
      {2,
       {"shard.strategy=full_shard", "train.activation_checkpointing=selective",
        "shard.prefetch_backward=3"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2", "train.activation_checkpointing=full"}},
      {4, {"shard.strategy=hfsdp", "shard.group=2", "shard.keep_gathered=1"}},
      // Copies of weights that are kept for a step (issue 39).
      {1, kept({"train.activation_checkpointing=full"})},
      {2, kept({"shard.strategy=no_shard"})},
      {2, kept({"shard.strategy=full_shard", "train.activation_checkpointing=selective"})},
      {2, {"shard.strategy=shard_grad_op", "shard.keep_across_micro_steps=true"}},
      {4, kept({"shard.strategy=hfsdp", "shard.group=2", "verify.micro_batch_every=1"})},
  };
  for (const std::string scaling : {"delayed", "current"}) {
    const Finished alone = train(1, scaling, fp8(scaling));
    ASSERT_EQ(alone.status, 0) << alone.err;
    const auto curve = losses(scaling);
    ASSERT_EQ(curve.size(), 10u);
    EXPECT_LT(curve.back(), curve.front() - 0.3) << "it should learn something";
    int run = 0;
    for (const auto& [world, layout] : layouts) {
      const std::string dir = scaling + std::to_string(run++);
      const Finished done = train(world, dir, fp8(scaling, layout));
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(scaling)) << ::testing::PrintToString(layout) << " on " << world;
      EXPECT_EQ(losses(dir), curve) << ::testing::PrintToString(layout) << " on " << world;
    }
  }
  ASSERT_EQ(train(1, "bf16", bf16()).status, 0);
  ASSERT_EQ(train(1, "margin", fp8("delayed", {"fp8.margin=6"})).status, 0);
  // The scales do decide bits, and 8 bits are not 16.
  EXPECT_NE(digest("delayed"), digest("current"));
  EXPECT_NE(digest("delayed"), digest("margin"));
  EXPECT_NE(digest("delayed"), digest("bf16"));
}

TEST_F(Fp8Training, GoesOnFromACheckpointAsIfItHadNotStopped) {
  // Scales are up against what the values need, so that those of another history would show.
  const auto sets = [](const Sets& more) {
    Sets all = fp8("delayed", {"fp8.margin=6", "optim.schedule=constant"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(train(1, "whole", sets({})).status, 0);
  for (const auto& [world, steps, strategy] :
       {std::tuple{4, 2, "hfsdp"}, {1, 7, "no_shard"}, {2, 10, "full_shard"}}) {
    const Finished part =
        train(world, "parts",
              sets({"train.steps=" + std::to_string(steps), std::string("shard.strategy=") + strategy}));
    ASSERT_EQ(part.status, 0) << part.err;
  }
  EXPECT_EQ(digest("parts"), digest("whole"));
  EXPECT_EQ(losses("parts"), losses("whole"));

  // A history that is lost is not made up for by the steps behind it.
  ASSERT_EQ(train(1, "plain", bf16({"optim.schedule=constant", "train.steps=7"})).status, 0);
  const std::string manifest = files::read_text(checkpoint("parts", 7) / "manifest.json");
  EXPECT_EQ(manifest.find("\"scaling\":\"\""), std::string::npos);
  EXPECT_NE(files::read_text(checkpoint("plain", 7) / "manifest.json").find("\"scaling\":\"\""),
            std::string::npos);
}

TEST_F(Fp8Training, EvaluationsChangeNoBit) {
  write_tokens("held.bin", vocabulary, 500);
  ASSERT_EQ(train(1, "plain", fp8("delayed")).status, 0);
  const Sets evaluated = {"eval.every=2", "data.validation=" + path("held.bin"), "eval.samples=5"};
  std::vector<std::string> curves;
  for (const auto& [dir, sets] : {std::pair{"evaluated", evaluated}, {"kept", kept(evaluated)}}) {
    const Finished done = train(2, dir, fp8("delayed", sets));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(digest(dir), digest("plain"));
    curves.emplace_back();
    for (const auto& step : metrics(dir))
      if (step.contains("held_out_loss")) curves.back() += step["held_out_loss"].dump() + " ";
  }
  EXPECT_FALSE(curves[0].empty());
  EXPECT_EQ(curves[0], curves[1]);
}

TEST_F(Fp8Training, TakesUpAnotherArithmeticOnlyWhenTold) {
  ASSERT_EQ(train(1, "run", bf16({"train.steps=5", "optim.schedule=constant"})).status, 0);
  const Sets eight = fp8("delayed", {"optim.schedule=constant"});
  const Finished refused = train(1, "run", eight);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("products fp8 delayed history 3 margin 0"));
  const Finished done =
      train(1, "run", fp8("delayed", {"optim.schedule=constant", "run.other_numerics=continue"}));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(losses("run").size(), 10u);
}

TEST_F(Fp8Training, MemoryIsPlannedAndNothingIsAllocatedLater) {
  std::vector<std::int64_t> bytes;
  for (const std::string scaling : {"delayed", "current", "kept"}) {
    const Sets sets = {"shard.strategy=full_shard", "shard.keep_gathered=all", "checkpoint.every=0"};
    const Finished done = scaling == "kept" ? train(2, scaling, fp8("current", kept(sets)))
                                            : train(2, scaling, fp8(scaling, sets));
    ASSERT_EQ(done.status, 0) << done.err;
    std::smatch planned, used;
    ASSERT_TRUE(std::regex_search(done.err, planned, std::regex("each rank plans (\\d+) bytes of memory")));
    ASSERT_TRUE(
        std::regex_search(done.err, used, std::regex("uses (\\d+) bytes of memory of (\\d+) planned")));
    EXPECT_EQ(used[1], planned[1]);
    EXPECT_EQ(used[2], planned[1]);
    bytes.push_back(std::stoll(planned[1]));
    const auto steps = metrics(scaling);
    for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i]["allocations"], 0) << "step " << i + 1;
  }
  // Two bytes for every weight of both blocks' linear layers, without room for one of them at a time.
  const std::int64_t weights = 32 * (64 + 32 + 192 + 96),
                     one_at_a_time = bytes[1] + 2 * 2 * weights - bytes[2];
  EXPECT_GE(one_at_a_time, 0);
  EXPECT_LE(one_at_a_time, 32 * 192);
}

/// 150 steps; the mean of the last 30.
TEST_F(Fp8Training, LearnsAsFarAsBf16) {
  const Sets longer = {"train.steps=150", "train.global_batch=8", "train.lanes=4", "optim.lr=3e-3",
                       "checkpoint.every=0"};
  auto end_of = [&](const std::string& dir) {
    const auto curve = losses(dir);
    return std::accumulate(curve.end() - 30, curve.end(), 0.0) / 30;
  };
  ASSERT_EQ(train(1, "bf16", bf16(longer)).status, 0);
  const double want = end_of("bf16");
  for (const std::string scaling : {"delayed", "current"}) {
    ASSERT_EQ(train(1, scaling, fp8(scaling, longer)).status, 0);
    std::printf("%s: loss %.4f, in bf16 %.4f\n", scaling.c_str(), end_of(scaling), want);
    EXPECT_NEAR(end_of(scaling) / want, 1, 5e-3);
  }
  EXPECT_LT(want, 0.8 * losses("bf16").front()) << "it should have learnt something";
}

}  // namespace
}  // namespace holdfast::train

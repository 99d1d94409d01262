// holdfast-train on simulated GPUs, from end to end: the trainer's streams, events, graphs and communicators
// in random orders, every race and every incomplete key of repeated work found, and the promise of the
// numerics as on the CPU.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class TrainOnSim : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    env::set("HOLDFAST_CUDA_MODULE", HOLDFAST_SIM_MODULE);
  }
  static Sets on_gpu(Sets sets, const std::string& reduce = "bf16") {
    for (const std::string& set : {std::string("train.device=cuda"), std::string("train.steps=4"),
                                   std::string("train.leaves=4"), std::string("train.lanes=4"),
                                   std::string("precision.parameters=bf16"), "precision.reduce=" + reduce})
      sets.push_back(set);
    return sets;
  }
  Finished train_with_seed(int world, const std::string& dir, const Sets& sets, int seed) {
    env::set("HOLDFAST_SIMT_SEED", std::to_string(seed));
    return train(world, dir, sets);
  }
};

TEST_F(TrainOnSim, EveryOrderStrategyAndWorldGivesTheSameBits) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {1, {"shard.strategy=no_shard", "train.recompute=selective"}},
      {2, {"shard.strategy=full_shard", "shard.prefetch_forward=2"}},
      {2, {"shard.strategy=shard_grad_op", "train.recompute=full", "shard.keep_across_micro_steps=true"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2"}},
      {4, {"shard.strategy=hfsdp", "shard.group=2", "train.recompute=attention"}},
  };
  int run = 0;
  for (const std::string reduce : {"fp32", "bf16"}) {
    const Finished alone = train_with_seed(1, reduce, on_gpu({}, reduce), ++run);
    ASSERT_EQ(alone.status, 0) << alone.err;
    const auto curve = losses(reduce);
    ASSERT_EQ(curve.size(), 4u);
    EXPECT_LT(curve.back(), curve.front());
    for (const auto& [world, layout] : layouts) {
      const std::string dir = reduce + std::to_string(++run);
      const Finished done = train_with_seed(world, dir, on_gpu(layout, reduce), run);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(reduce)) << ::testing::PrintToString(layout) << " on " << world;
      EXPECT_EQ(losses(dir), curve) << ::testing::PrintToString(layout) << " on " << world;
    }
  }
  EXPECT_NE(digest("fp32"), digest("bf16"));
}

TEST_F(TrainOnSim, AResumedRunIsTheRunItWouldHaveBeen) {
  const Sets sets = on_gpu({"checkpoint.every=2"});
  ASSERT_EQ(train_with_seed(2, "run", sets, 1).status, 0);
  const std::string whole = digest("run");
  std::filesystem::remove_all(checkpoint("run", 4));  // as if it had ended after step 2
  const Finished resumed = train_with_seed(1, "run", sets, 2);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, testing::HasSubstr("resuming from the checkpoint of step 2"));
  EXPECT_EQ(digest("run"), whole);
}

/// Other kernels round elsewhere, so the bits differ; the run does not.
TEST_F(TrainOnSim, TheLossIsThatOfTheCpu) {
  Sets cpu = on_gpu({});
  std::replace(cpu.begin(), cpu.end(), std::string("train.device=cuda"), std::string("train.device=cpu"));
  ASSERT_EQ(train(1, "cpu", cpu).status, 0);
  ASSERT_EQ(train(1, "gpu", on_gpu({})).status, 0);
  const auto a = losses("cpu"), b = losses("gpu");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-3 * a[i]);
}

TEST_F(TrainOnSim, AGpuThatIsTooSmallSaysWhatDoesNotFit) {
  env::set("HOLDFAST_SIM_MEMORY", "100000");
  const Finished done = train(1, "small", on_gpu({}));
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, testing::HasSubstr("bytes"));
  env::set("HOLDFAST_SIM_MEMORY", std::to_string(1 << 30));
}

}  // namespace
}  // namespace holdfast::train

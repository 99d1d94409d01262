// Training with 8-bit products on simulated GPUs: the same bits in every order of the work and every layout,
// and the losses of the CPU, whose copies are the same.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class Fp8OnSim : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    env::set("HOLDFAST_CUDA_MODULE", HOLDFAST_SIM_MODULE);
    write("model.toml",
          "[model]\nname = \"micro8\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = "
          "2\nffn = "
          "96\nmax_sequence = 64\n");
  }
  Finished train_on(const std::string& device, int world, const std::string& dir, const std::string& scaling,
                    const Sets& more = {}) {
    Sets sets = {"train.device=" + device, "train.steps=4",          "train.leaves=4",
                 "train.lanes=4",          "precision.reduce=bf16",  "precision.parameters=bf16",
                 "precision.products=fp8", "fp8.scaling=" + scaling, "fp8.history=2",
                 "checkpoint.every=2"};
    sets.insert(sets.end(), more.begin(), more.end());
    env::set("HOLDFAST_SIMT_SEED", std::to_string(++seed_));
    return train(world, dir, sets);
  }

 private:
  int seed_ = 0;
};

TEST_F(Fp8OnSim, EveryOrderAndLayoutGivesTheSameBitsAndTheLossesOfTheCpu) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {2, {"shard.strategy=full_shard", "train.recompute=full"}},
      {4, {"shard.strategy=hfsdp", "shard.group=2", "train.recompute=selective"}},
  };
  for (const std::string scaling : {"delayed", "current"}) {
    const Finished alone = train_on("cuda", 1, scaling, scaling);
    ASSERT_EQ(alone.status, 0) << alone.err;
    ASSERT_EQ(train_on("cpu", 1, scaling + " on the cpu", scaling).status, 0);
    const auto on_gpu = losses(scaling), on_cpu = losses(scaling + " on the cpu");
    ASSERT_EQ(on_gpu.size(), 4u);
    ASSERT_EQ(on_cpu.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(on_gpu[i] / on_cpu[i], 1, 1e-4);
    int run = 0;
    for (const auto& [world, layout] : layouts) {
      const std::string dir = scaling + std::to_string(++run);
      const Finished done = train_on("cuda", world, dir, scaling, layout);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(scaling)) << ::testing::PrintToString(layout) << " on " << world;
      EXPECT_EQ(losses(dir), on_gpu);
    }
  }
}

TEST_F(Fp8OnSim, AResumedRunIsTheRunItWouldHaveBeen) {
  ASSERT_EQ(train_on("cuda", 2, "run", "delayed").status, 0);
  const std::string whole = digest("run");
  std::filesystem::remove_all(checkpoint("run", 4));  // as if it had ended after step 2
  const Finished resumed = train_on("cuda", 1, "run", "delayed");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, ::testing::HasSubstr("resuming from the checkpoint of step 2"));
  EXPECT_EQ(digest("run"), whole);
}

}  // namespace
}  // namespace holdfast::train

#include "launcher/foresee/forecast.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

struct Job {
  config::RunConfig config;
  config::ModelShape model;
  config::ClusterFacts facts;
  int world() const { return config.cluster.nodes * config.cluster.ranks_per_node; }
  int group() const { return config::shard_group_of(config, world()); }
  Forecast forecast() const { return forecast_of(config, model, facts, world(), group()); }
  StepFacts step() const {
    return step_facts_of(config, model, *gpu_kind_called(facts.gpu), facts, world(), group());
  }
};

Job job_of(const std::vector<std::string>& sets = {}, const std::string& name = "llama2-7b-nabuchodonosor") {
  Job job;
  job.facts = config::load_cluster(config::load(name, sets).config.cluster.file);
  job.config = config::resolve(config::load(name, sets).config, job.facts);
  job.model = config::load_model(job.config.model.file);
  return job;
}

TEST(Forecast, of_a_job_on_gpus_has_all_numbers) {
  const Job job = job_of();
  const Forecast f = job.forecast();
  ASSERT_TRUE(f.known()) << f.missing;
  EXPECT_EQ(f.gpu, "H100 SXM");
  EXPECT_EQ(f.world, 992);
  EXPECT_EQ(f.tokens, 992 * 4096);
  EXPECT_LT(f.step.fast, f.step.typical);
  EXPECT_LT(f.step.typical, f.step.slow);
  EXPECT_DOUBLE_EQ(f.step.typical, f.parts.total());
  EXPECT_DOUBLE_EQ(f.tokens_s_gpu(f.step.typical) * 992 * f.step.typical, f.tokens);
  EXPECT_GT(f.mfu(f.flops_palm), f.mfu(f.flops_causal));
  EXPECT_GT(f.mfu(f.flops_causal), 0.2);
  EXPECT_LT(f.mfu(f.flops_palm), 0.7);
  EXPECT_DOUBLE_EQ(f.gpu_hours(), 992 * f.hours(f.step.typical));
}

TEST(Forecast, of_energy_is_that_of_boards_and_of_nodes) {
  Forecast f;
  f.world = 127 * 8;
  f.steps = 3600;
  f.step.typical = 1;
  f.watts = 700;
  EXPECT_NEAR(f.kwh_of_gpus(), 127 * 8 * 0.7, 1e-6) << "an hour";
  EXPECT_NEAR(f.kwh_of_nodes(), 127 * 8.4, 1e-6);
}

TEST(Forecast, says_what_is_missing) {
  Job job = job_of();
  job.facts.nic_bytes_s = 0;
  EXPECT_EQ(job.forecast().missing, "the cluster file has no nic_bytes_s");
  job.config.cluster.nodes = 1;
  job.config.shard.group = 8;
  EXPECT_EQ(job.forecast().missing, "") << "one node needs no network";
  job.facts.gpu = "mi300x";
  EXPECT_EQ(
      job.forecast().missing,
      "the cluster file's gpu is \"mi300x\", and known are H100 SXM, H100 PCIe, H200, GH200, A100 80GB, L4, "
      "L40S, B200");
  job.config.train.device = config::Device::cpu;
  EXPECT_THAT(job.forecast().missing, HasSubstr("compute on CPUs"));
  job.config.rank.command = {"python3", "train.py"};
  EXPECT_EQ(job.forecast().missing, "nothing is known of another program's steps");
}

TEST(Forecast, takes_its_facts_from_the_settings) {
  const StepFacts plain = job_of().step();
  EXPECT_EQ(plain.group, 8);
  EXPECT_EQ(plain.replicas, 124);
  EXPECT_EQ(plain.micro_steps, 1);
  EXPECT_EQ(plain.gathered_bytes, 2);
  EXPECT_EQ(plain.reduced_bytes, 2);
  EXPECT_EQ(plain.trainer.optimizer_bytes, 38);
  EXPECT_EQ(plain.trainer.attention, Attention::ours_deterministic);
  EXPECT_DOUBLE_EQ(plain.gathers, 2 - 2.0 / 32) << "two blocks of the ring are still there";
  EXPECT_FALSE(plain.split_optimizer);

  EXPECT_TRUE(job_of({"shard.strategy=hfsdp"}).step().split_optimizer);
  EXPECT_EQ(job_of({"shard.strategy=full_shard"}).step().group, 992);
  EXPECT_EQ(job_of({"shard.strategy=shard_grad_op"}).step().gathers, 1);
  const StepFacts kept = job_of({"precision.products=fp8", "shard.keep_gathered=all",
                                 "shard.keep_across_micro_steps=true", "train.global_batch=1984"})
                             .step();
  EXPECT_EQ(kept.gathers, 0.5);
  EXPECT_EQ(kept.rounded_weights, 0.5);
  EXPECT_EQ(job_of({"precision.reduce=fp32"}).step().reduced_bytes, 4);
  EXPECT_EQ(job_of({"precision.moments=bf16"}).step().trainer.optimizer_bytes, 30);
  const StepFacts offloaded = job_of({"shard.offload=moments"}).step();
  EXPECT_EQ(offloaded.trainer.optimizer_bytes, 22);
  EXPECT_EQ(offloaded.offloaded_bytes, 8);
  EXPECT_TRUE(job_of({"precision.products=fp8"}).step().fp8);
  EXPECT_EQ(job_of({"precision.products=fp8"}).step().rounded_weights, 1);
  EXPECT_EQ(job_of({"train.deterministic=false"}).step().trainer.attention, Attention::ours);
  EXPECT_EQ(job_of({"train.activation_checkpointing=full"}).step().recomputed, (Recomputed{1, 1, 1}));
  EXPECT_EQ(job_of({"lora.rank=8", "lora.base=nf4"}).step().gathered_bytes, 0.5);
  EXPECT_EQ(job_of({"lora.rank=8", "lora.base=int8"}).step().gathered_bytes, 1);
}

TEST(Forecast, shares_nics_among_gpus) {
  Job job = job_of();
  EXPECT_EQ(job.step().adapter_bytes_s, 50e9);
  for (auto& gpu : job.facts.gpus) gpu.nic = gpu.gpu < 4 ? "mlx5_0" : "mlx5_1";
  EXPECT_EQ(job.step().adapter_bytes_s, 12.5e9) << "two for eight";
  for (auto& gpu : job.facts.gpus) gpu.nic = "";
  EXPECT_EQ(job.step().adapter_bytes_s, 50e9) << "not named: one each";
}

TEST(Forecast, of_whole_copies_gathers_nothing_and_merges_lanes) {
  const StepFacts f = job_of({"shard.strategy=no_shard", "train.global_batch=7936"}).step();
  EXPECT_EQ(f.group, 1);
  EXPECT_EQ(f.replicas, 992);
  EXPECT_EQ(f.micro_steps, 8);
  EXPECT_EQ(f.gathers, 0);
  EXPECT_EQ(f.merged_bytes, 28) << "docs/gpu-budget.md: ordered_sum of one card";
}

}  // namespace
}  // namespace holdfast::launcher

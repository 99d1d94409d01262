#include "launcher/foresee/step_time.hpp"

#include <gtest/gtest.h>

#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using config::ActivationCheckpointing;

/// Llama 2 7B on one node of eight H100, a sequence of 4,096 tokens for each.
StepFacts node(int group = 8, int replicas = 1) {
  StepFacts f;
  f.gpu = *gpu_kind_called("h100");
  f.adapter_bytes_s = 50e9;
  f.ranks_per_node = 8;
  f.model = config::load_model("llama2-7b");
  f.sequence = 4096;
  f.micro_steps = 2;
  f.group = group;
  f.replicas = replicas;
  if (group == 1) f.gathers = 0;
  return f;
}
StepParts typical(const StepFacts& f) { return step_time(f, typical_rates()); }
double seconds(const StepFacts& f) { return typical(f).total(); }

/// docs/gpu-runs.md: 7B's width, 8 layers, 8 micro-batches of 4,096 tokens, one H100. The rates come from its
/// operators; the whole step does not. All gradients were still added by a kernel of its own, 12 bytes for
/// each in every micro-batch.
TEST(StepTime, of_our_trainer_on_one_gpu_is_what_was_measured) {
  StepFacts f = node(1);
  f.model.layers = 8;
  f.micro_steps = 8;
  f.recomputed = recomputed_by(ActivationCheckpointing::selective);
  f.merged_bytes = 8 * 12;
  EXPECT_NEAR(seconds(f), 8 * 4096 / 43900.0, 0.04 * 0.747) << "deterministic";
  f.trainer.attention = Attention::ours;
  EXPECT_NEAR(seconds(f), 8 * 4096 / 45400.0, 0.04 * 0.722);
  f.trainer.attention = Attention::ours_deterministic;
  f.fp8 = true;
  EXPECT_NEAR(seconds(f), 8 * 4096 / 55000.0, 0.04 * 0.596) << "8-bit products";
}

TEST(StepTime, is_the_sum_of_its_parts_and_lies_between_its_ends) {
  for (const StepFacts& f : {node(), node(1), node(8, 16), node(128)}) {
    const StepParts parts = typical(f);
    double sum = 0;
    for (const NamedPart& part : step_parts) {
      EXPECT_GE(parts.*part.seconds, 0) << part.name;
      sum += parts.*part.seconds;
    }
    EXPECT_DOUBLE_EQ(parts.total(), sum);
    EXPECT_LT(step_time(f, fast_rates()).total(), sum);
    EXPECT_GT(step_time(f, slow_rates()).total(), sum);
  }
}

TEST(StepTime, grows_with_micro_steps_and_their_tokens) {
  StepFacts f = node();
  const double two = seconds(f);
  f.micro_steps = 4;
  EXPECT_NEAR(seconds(f) / two, 2, 0.1);
  f.micro_steps = 2;
  f.micro_batch = 2;
  EXPECT_NEAR(seconds(f) / two, 1.85, 0.15) << "what is not hidden is not longer";
}

TEST(StepTime, grows_with_what_is_recomputed) {
  double before = -1;
  for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::selective,
                          ActivationCheckpointing::attention, ActivationCheckpointing::full}) {
    StepFacts f = node();
    f.recomputed = recomputed_by(mode);
    const double again = typical(f).recomputed;
    EXPECT_GT(again, before);
    before = again;
  }
  EXPECT_LT(before, typical(node()).products / 2) << "a forward pass at most";
}

TEST(StepTime, waits_where_collectives_take_longer_than_computing) {
  StepFacts f = node(128);
  EXPECT_LT(typical(f).network, 0.1 * seconds(f));
  f.adapter_bytes_s = 3e9;
  EXPECT_GT(typical(f).network, 0.5 * seconds(f));
  EXPECT_EQ(typical(f).links, 0) << "the group is bound by the network";
  StepFacts pcie = node();
  pcie.gpu.link_bytes_s = 0;
  EXPECT_GT(typical(pcie).links, typical(node()).links);
  EXPECT_EQ(typical(pcie).network, 0) << "one node";
}

TEST(StepTime, of_one_gpu_has_no_collectives) {
  StepFacts f = node(1);
  f.ranks_per_node = 1;
  const StepParts parts = typical(f);
  EXPECT_EQ(parts.shared + parts.links + parts.network + parts.sums, 0);
}

TEST(StepTime, of_replicas_has_their_exchange_at_the_end) {
  EXPECT_EQ(typical(node()).network, 0);
  EXPECT_GT(typical(node(8, 16)).network, 0);
  EXPECT_GT(typical(node(4, 2)).links, typical(node(4, 1)).links) << "replicas within a node";
}

TEST(StepTime, of_hfsdp_updates_less_and_gathers_the_results) {
  StepFacts hybrid = node(8, 16), hfsdp = hybrid;
  hfsdp.split_optimizer = true;
  EXPECT_NEAR(typical(hfsdp).optimizer * 16, typical(hybrid).optimizer, 1e-9);
  EXPECT_GT(typical(hfsdp).network, typical(hybrid).network);
}

TEST(StepTime, is_shorter_where_blocks_stay_gathered_or_fewer_bytes_are_sent) {
  StepFacts f = node(128);
  const double full = seconds(f);
  f.gathers = 1;
  EXPECT_LT(seconds(f), full);
  f.reduced_bytes = 2;
  const double narrow = seconds(f);
  EXPECT_LT(narrow, full);
  f.gathers = 0;
  EXPECT_LT(seconds(f), narrow);
}

TEST(StepTime, of_adapters_has_no_gradients_of_the_model) {
  StepFacts f = node(), lora = f;
  lora.model.adapters.rank = 16;
  lora.model.adapters.on.fill(true);
  const StepParts all = typical(f), few = typical(lora);
  EXPECT_LT(few.products, 0.8 * all.products);
  EXPECT_GT(few.products, 0.6 * all.products);
  EXPECT_LT(few.optimizer, 0.01 * all.optimizer);
  EXPECT_LT(few.head, all.head);
}

TEST(StepTime, counts_what_goes_to_the_host) {
  StepFacts f = node();
  const double before = typical(f).optimizer;
  f.offloaded_bytes = 8;
  EXPECT_GT(typical(f).optimizer, before);
}

}  // namespace
}  // namespace holdfast::launcher

// What was planned is what is there: memory, bytes on the wire, and no allocation after the first step.
#include <gmock/gmock.h>

#include <regex>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class StaticMemory : public TrainingFixture {
 protected:
  static std::vector<std::int64_t> numbers(const std::string& text, const std::string& pattern) {
    std::smatch match;
    std::vector<std::int64_t> out;
    if (std::regex_search(text, match, std::regex(pattern)))
      for (std::size_t i = 1; i < match.size(); ++i) out.push_back(std::stoll(match[i]));
    return out;
  }
};

TEST_F(StaticMemory, PlansHoldInEveryStrategy) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {1, {"shard.strategy=no_shard"}},
      {1, {"shard.strategy=no_shard", "train.activation_checkpointing=full"}},
      {2, {"shard.strategy=full_shard", "train.activation_checkpointing=selective"}},
      {2, {"shard.strategy=shard_grad_op", "shard.keep_across_micro_steps=true"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2", "shard.prefetch_forward=2"}},
      {4, {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=attention"}},
      {1, {"shard.strategy=no_shard", "train.lanes=0"}},
      {3, {"shard.strategy=no_shard", "train.lanes=0"}},
      {6, {"shard.strategy=hybrid_shard", "shard.group=2", "train.lanes=0"}},
  };
  int run = 0;
  for (const std::string parameters : {"fp32", "bf16"})
    for (const auto& [world, layout] : layouts) {
      const std::string dir = "run" + std::to_string(run++);
      Sets sets = layout;
      sets.insert(sets.end(),
                  {"precision.parameters=" + parameters, "checkpoint.every=0", "train.peak_tflops=0.001"});
      const Finished done = train(world, dir, sets);
      ASSERT_EQ(done.status, 0) << done.err;
      const auto planned = numbers(done.err, "each rank plans (\\d+) bytes of memory .* sends (\\d+) bytes");
      const auto used = numbers(done.err, "uses (\\d+) bytes of memory of (\\d+) planned");
      ASSERT_EQ(planned.size(), 2u) << done.err;
      ASSERT_EQ(used.size(), 2u) << done.err;
      EXPECT_EQ(used[0], planned[0]) << dir;
      EXPECT_EQ(used[1], planned[0]) << dir;
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
}

}  // namespace
}  // namespace holdfast::train

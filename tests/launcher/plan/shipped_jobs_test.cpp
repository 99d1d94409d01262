// Every job and model that comes with Holdfast plans what ranks accept: the checks of a rank, by its own
// code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launcher/plan/plan.hpp"
#include "launcher/plan/topology.hpp"
#include "src/base/error.hpp"
#include "src/config/adapters.hpp"
#include "src/config/load.hpp"
#include "src/cuda/attention/attention_plan.hpp"
#include "src/shard/memory_plan.hpp"
#include "src/shard/wire_plan.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& kind) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(std::string(HOLDFAST_SOURCE_DIR "/configs/") + kind))
    if (entry.path().extension() == ".toml") out.push_back(entry.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}

/// What holdfast-train does with the settings before its first step, on every rank.
void as_a_rank(const config::RunConfig& config, const config::ModelShape& shape, bool on_gpu) {
  config::check(config, shape);
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const auto policy = shard::policy_of(config, shape.layers);
  for (const int rank : {0, world / 2, world - 1}) {
    const auto layout = shard::layout_of(shape, shard::mesh_of(config.shard.strategy, config.shard.group,
                                                               config.cluster.ranks_per_node, world, rank));
    const config::LanePlan lanes(config.train, layout.mesh.replicas, layout.mesh.group);
    EXPECT_GE(lanes.micro_steps(layout.mesh.replica()), 1);
    shard::memory_plan(layout, lanes, policy);
    shard::wire_plan(layout, lanes, policy);
  }
  if (on_gpu)
    cuda::check_supported({config.train.micro_batch, config.train.sequence, shape.heads, shape.kv_heads,
                           shape.head_size(), true},
                          policy.parameters);
}

TEST(ShippedJobs, PlanWhatRanksAccept) {
  const auto jobs = names_in("jobs");
  ASSERT_GE(jobs.size(), 7u);
  for (const auto& job : jobs) {
    SCOPED_TRACE(job);
    const auto given = config::load(HOLDFAST_SOURCE_DIR "/configs/jobs/" + job + ".toml").config;
    const auto facts = config::load_cluster(given.cluster.file);
    const auto model = config::model_of(given);
    const auto config = config::resolve(given, facts);
    const bool on_gpu = config::computes_on_gpus(config, facts);
    EXPECT_EQ(on_gpu, job != "quickstart");
    EXPECT_EQ(config.precision.parameters, on_gpu ? config::Precision::bf16 : config::Precision::fp32);
    const auto plan =
        make_plan(given, model, facts, hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares),
                  std::nullopt);
    for (const auto& warning : plan.warnings) EXPECT_THAT(warning, testing::HasSubstr("batch host"));
    as_a_rank(config, model, on_gpu);
  }
}

TEST(ShippedJobs, GoOnWithHalfTheNodesAndOneLess) {
  for (const auto& job : names_in("jobs")) {
    auto config = config::load(HOLDFAST_SOURCE_DIR "/configs/jobs/" + job + ".toml").config;
    const auto facts = config::load_cluster(config.cluster.file);
    const auto model = config::model_of(config);
    const int lanes = config::resolve(config, facts).train.lanes, nodes = config.cluster.nodes;
    for (const int fewer : {nodes / 2, nodes - 1}) {
      config.cluster.nodes = fewer;
      const bool whole = config.shard.group == 0 || fewer * 8 % config.shard.group == 0;
      const bool shared = config.shard.strategy != config::Strategy::full_shard;
      if (fewer == 0 || !whole || !shared) continue;
      SCOPED_TRACE(job + " on " + std::to_string(fewer));
      const auto resolved = config::resolve(config, facts);
      EXPECT_EQ(resolved.train.lanes, lanes);
      as_a_rank(resolved, model, config::computes_on_gpus(resolved, facts));
    }
  }
}

TEST(ShippedModels, HaveHeadsThatGpusTake) {
  for (const auto& name : names_in("models")) {
    SCOPED_TRACE(name);
    const auto shape = config::load_model(name);
    config::RunConfig config;
    config.precision.parameters = config::Precision::bf16;
    config::check_gpu(config, shape);
    cuda::check_supported({1, 128, shape.heads, shape.kv_heads, shape.head_size(), true},
                          tensor::DType::bf16);
  }
}

}  // namespace
}  // namespace holdfast::launcher

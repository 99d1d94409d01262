// What was left open, and the rules across fields.
#include <fmt/core.h>

#include "src/base/error.hpp"
#include "src/base/gpu_limits.hpp"
#include "src/config/check_parts.hpp"
#include "src/config/load.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {
namespace {

/// One answer to what the run begins with.
void check_beginning(const RunConfig& config) {
  const bool from_checkpoint = config.run.resume != "auto" && config.run.resume != "none";
  const bool adapts = config.lora.rank > 0;  // then model.weights lie beside what is trained
  const std::string& weights = adapts ? config.lora.weights : config.model.weights;
  if (from_checkpoint && !weights.empty())
    throw Error(
        Exit::usage,
        fmt::format("run.resume and {}.weights both say what the run begins with", adapts ? "lora" : "model"),
        "the one goes on with all of a checkpoint's state, the other takes weights and a fresh optimizer",
        "Leave one of them out?");
  if (!adapts && !config.lora.weights.empty())
    throw Error(Exit::usage, "lora.weights names adapters, and the run has none", "lora.rank is 0",
                "Set lora.rank, lora.alpha and lora.targets as theirs are?");
}

}  // namespace

RunConfig resolve(RunConfig config, const ClusterFacts& facts) {
  if (config.cluster.ranks_per_node == 0) config.cluster.ranks_per_node = facts.gpus_per_node;
  const int world = config.cluster.nodes * config.cluster.ranks_per_node;
  const int group = shard_group_of(config, world);
  if (config.shard.strategy == Strategy::hybrid_shard || config.shard.strategy == Strategy::hfsdp)
    config.shard.group = group;
  const bool on_gpus = computes_on_gpus(config, facts);
  return resolve_arithmetic(std::move(config), on_gpus);
}

RunConfig resolve_arithmetic(RunConfig config, bool on_gpu) {
  if (config.train.lanes == 0) config.train.lanes = micro_batches(config.train);
  if (config.precision.parameters == Precision::automatic)
    config.precision.parameters = on_gpu ? Precision::bf16 : Precision::fp32;
  return config;
}

bool computes_on_gpus(const RunConfig& config, const ClusterFacts& facts) {
  return config.train.device == Device::cuda ||
         (config.train.device == Device::automatic && facts.gpu != "none");
}

std::vector<Error> refusals_of(const RunConfig& config, const ModelShape& model) {
  ErrorList first;  // the other rules divide by what these look at
  first.of([&] { check_beginning(config); });
  check_launch(config, first);
  first.of([&] { check_model(model); });
  first.of([&] { check_train(config.train, model); });
  if (!first.all().empty()) return first.all();
  ErrorList rest;
  check_training(config, model, rest);
  rest.of([&] { check_sharding(config, model); });
  return rest.all();
}

void check(const RunConfig& config, const ModelShape& model) {
  if (const auto refused = refusals_of(config, model); !refused.empty()) throw refused.front();
}

void check_gpu(const RunConfig& config, const ModelShape& model) {
  check_gpu_attention(config.precision.parameters == Precision::bf16, model.head_size());
}

}  // namespace holdfast::config

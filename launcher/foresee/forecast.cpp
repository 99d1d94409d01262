#include "launcher/foresee/forecast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/config/compute_options.hpp"
#include "src/config/kept_blocks.hpp"
#include "src/config/lane_plan.hpp"
#include "src/config/load.hpp"
#include "src/config/model_flops.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

double bytes_in(config::Precision type) { return type == config::Precision::bf16 ? 2 : 4; }

/// How often a block is gathered in a micro-step. Where blocks share a ring of buffers, the last ones of a
/// pass are still there when the next one begins (src/shard/schedule.hpp).
double gathers_of(const config::Shard& shard, int layers, int micro_steps) {
  const auto kept = config::kept_blocks(shard, layers);
  const double keeps = static_cast<double>(std::count(kept.begin(), kept.end(), true)) / layers;
  const double ring = std::min<double>(layers, 1 + std::max(shard.prefetch_forward, shard.prefetch_backward));
  return keeps * (shard.keep_across_micro_steps ? 1.0 / micro_steps : 1) + (1 - keeps) * (2 - ring / layers);
}

/// Per parameter and step, where a rank holds all of them: products add to the sum themselves, and what is
/// left are merges of lanes. The first reads two sums and writes one, each further one reads one more.
double merged_bytes(const config::LanePlan& lanes) {
  double bytes = 0;
  for (int step = 0; step < lanes.micro_steps(0); ++step)
    for (const auto& term : lanes.additions(0, step).terms)
      if (term.merges > 0) bytes += 8 + 4 * term.merges;
  return bytes;
}

/// Bytes per second that a rank has of its node's NICs: GPUs may share one.
double share_of_nics(const config::ClusterFacts& facts, int ranks_per_node) {
  std::set<std::string> nics;
  for (const auto& gpu : facts.gpus) nics.insert(gpu.nic);
  const auto named = nics.size() - nics.count("");
  const bool shared = named > 0 && named < facts.gpus.size();
  return facts.nic_bytes_s * (shared ? std::min(1.0, static_cast<double>(named) / ranks_per_node) : 1);
}

std::string what_is_missing(const config::RunConfig& config, const config::ClusterFacts& facts, int world) {
  if (!config::promises_of(config.rank).trains_as_set) return "nothing is known of another program's steps";
  if (!config::computes_on_gpus(config, facts)) return "ranks compute on CPUs, of which no rates are known";
  if (gpu_kind_called(facts.gpu) == nullptr) {
    std::string names;
    for (const GpuKind& kind : gpu_kinds())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
    return fmt::format("the cluster file's gpu is \"{}\", and known are {}", facts.gpu, names);
  }
  if (world > config.cluster.ranks_per_node && facts.nic_bytes_s <= 0)
    return "the cluster file has no nic_bytes_s";
  return "";
}

}  // namespace

StepFacts step_facts_of(const config::RunConfig& config, const config::ModelShape& model, const GpuKind& gpu,
                        const config::ClusterFacts& facts, int world, int group) {
  const int replicas = world / group;
  const config::LanePlan lanes(config.train, replicas, group);
  StepFacts f;
  f.gpu = gpu;
  f.adapter_bytes_s = share_of_nics(facts, config.cluster.ranks_per_node);
  f.ranks_per_node = config.cluster.ranks_per_node;
  f.model = model;
  f.sequence = config.train.sequence;
  f.micro_batch = config.train.micro_batch;
  for (int replica = 0; replica < replicas; ++replica)
    f.micro_steps = std::max(f.micro_steps, lanes.micro_steps(replica));
  f.group = group;
  f.replicas = replicas;
  const config::Base base = config.lora.rank > 0 ? config.lora.base : config::Base::parameters;
  f.gathered_bytes = base == config::Base::parameters ? bytes_in(config.precision.parameters)
                     : base == config::Base::int8     ? 1
                                                      : 0.5;
  f.reduced_bytes = bytes_in(config.precision.reduce);
  f.partial_sums = static_cast<double>(lanes.partial_sums(0).size());
  f.gathers = group > 1 ? gathers_of(config.shard, model.layers, f.micro_steps) : 0;
  f.merged_bytes = group > 1 ? 0 : merged_bytes(lanes);
  f.split_optimizer = config.shard.strategy == config::Strategy::hfsdp && replicas > 1;
  f.fp8 = config.precision.products == config::Products::fp8;
  f.rounded_weights = config::keeps_copies(config) ? 1.0 / f.micro_steps : 1;
  f.recomputed = recomputed_by(config.train.activation_checkpointing);
  f.trainer.attention = config.train.deterministic ? Attention::ours_deterministic : Attention::ours;
  // Squares read the gradient; AdamW reads it too, and reads and writes the parameter and both moments; the
  // new parameter is read again and written in its own type.
  const double moments = 2 * bytes_in(config.precision.moments);
  const bool offloaded = config.shard.offload == config::Offload::moments;
  f.trainer.optimizer_bytes = 4 + 4 + 8 + 6 + (offloaded ? 0 : 2 * moments);
  f.offloaded_bytes = offloaded ? moments : 0;
  return f;
}

Forecast forecast_of(const config::RunConfig& config, const config::ModelShape& model,
                     const config::ClusterFacts& facts, int world, int group) {
  Forecast out;
  out.missing = what_is_missing(config, facts, world);
  if (!out.known()) return out;
  const GpuKind& gpu = *gpu_kind_called(facts.gpu);
  const StepFacts f = step_facts_of(config, model, gpu, facts, world, group);
  out.gpu = gpu.name;
  out.parts = step_time(f, typical_rates());
  out.step = {out.parts.total(), step_time(f, fast_rates()).total(), step_time(f, slow_rates()).total()};
  out.world = world;
  out.steps = config.train.steps;
  out.tokens = 1.0 * config.train.global_batch * config.train.sequence;
  const config::TokenFlops flops = config::token_flops(model, config.train.sequence);
  out.flops_causal = flops.causal * out.tokens;
  out.flops_palm = flops.palm * out.tokens;
  out.peak_flops = gpu.bf16_flops;
  out.watts = gpu.watts;
  return out;
}

}  // namespace holdfast::launcher

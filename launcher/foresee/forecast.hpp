#pragma once
// What a run will take: time of a step, hours, GPU-hours, energy, from the settings and the cluster file.
// Pure; `holdfast plan` prints it. docs/foresee.md says how far to trust it.
#include <cstdint>
#include <string>

#include "launcher/foresee/step_time.hpp"
#include "src/config/cluster_facts.hpp"

namespace holdfast::launcher {

/// Seconds of a step: at typical rates, and at the two ends of what single operators were measured at.
struct StepRange {
  double typical = 0, fast = 0, slow = 0;
  bool operator==(const StepRange&) const = default;
};

struct Forecast {
  std::string missing;  ///< why there is none, as a sentence; "": there is one
  std::string gpu;      ///< its kind
  StepParts parts;      ///< of a typical step
  StepRange step;
  int world = 0;
  std::int64_t steps = 0;                   ///< of the whole run
  double tokens = 0;                        ///< of a step, over all ranks
  double flops_causal = 0, flops_palm = 0;  ///< of a step, over all ranks (config::TokenFlops)
  double peak_flops = 0;                    ///< per second, in bf16, of one GPU
  double watts = 0;                         ///< of one GPU's board

  bool known() const { return missing.empty(); }
  double tokens_s_gpu(double step_s) const { return tokens / step_s / world; }
  double mfu(double flops) const { return flops / step.typical / world / peak_flops; }
  /// Without checkpoints, lost nodes and the queue.
  double hours(double step_s) const { return static_cast<double>(steps) * step_s / 3600; }
  double gpu_hours() const { return hours(step.typical) * world; }
  double kwh_of_gpus() const { return gpu_hours() * watts / 1000; }  ///< boards at their full power
  double kwh_of_nodes() const;
  bool operator==(const Forecast&) const = default;
};

/// Power of a node over that of its GPUs' boards: eight of 700 W train in a node that draws 8.4 kW at most
/// (arXiv 2412.08602). Without cooling.
constexpr double node_over_boards = 8.4 / (8 * 0.7);
inline double Forecast::kwh_of_nodes() const { return kwh_of_gpus() * node_over_boards; }

/// `config` is resolved and checked; a shard group has `group` of `world` ranks.
Forecast forecast_of(const config::RunConfig& config, const config::ModelShape& model,
                     const config::ClusterFacts& facts, int world, int group);

/// The step of such a run on such a GPU.
StepFacts step_facts_of(const config::RunConfig& config, const config::ModelShape& model, const GpuKind& gpu,
                        const config::ClusterFacts& facts, int world, int group);

}  // namespace holdfast::launcher

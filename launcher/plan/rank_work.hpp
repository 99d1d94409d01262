#pragma once
// What a rank has to read, send and compute in the phases of a start and of a step, as planned. Pure.
#include <cstdint>

#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// Of one rank; bytes, operations, seconds. A program of which nothing is known has none of it.
struct RankWork {
  std::int64_t restored = 0;  ///< bytes of state that a restore fills
  std::int64_t saved = 0;     ///< bytes of a checkpoint that it writes
  std::int64_t tokens = 0;    ///< bytes that a micro-batch reads
  std::int64_t sent = 0;      ///< bytes of weights and gradients that it receives in a step, at most
  std::int64_t state = 0;     ///< bytes that the optimizer goes through
  double operations = 0;      ///< of a micro-batch: forward, backward, and forward again
  int peers = 0;              ///< ranks that it connects to
  /// Bytes per second of the shared file system that are its share; 0: not known.
  double read_s = 0, written_s = 0;
  bool gpu = false;
  int patience_s = 0;  ///< for a checkpoint that cannot be read
  bool known() const { return operations > 0; }
  bool operator==(const RankWork&) const = default;
};

RankWork rank_work(const Plan& plan, const config::RunConfig& config, const config::ModelShape& model,
                   const config::ClusterFacts& facts);

}  // namespace holdfast::launcher

#pragma once
// What a job takes of the host memory of each of its nodes: how many copies of the state its settings keep
// there, beside what CPU ranks compute in. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Plan;

/// Bytes, of one node with all its ranks.
struct HostMemory {
  std::int64_t state = 0;  ///< one copy of what its ranks hold: parameters and both moments
  std::int64_t ranks =
      0;  ///< CPU ranks: all that they compute in, but for the state where it lies in a snapshot
  std::int64_t moments = 0;    ///< of GPUs (shard.offload)
  std::int64_t snapshots = 0;  ///< snapshot buffers of the local level
  std::int64_t partners = 0;   ///< snapshots of other nodes (checkpoint.partner)
  std::int64_t saves = 0;      ///< kept for saves on their way to the shared level (checkpoint.every)
  std::int64_t tokens = 0;     ///< micro-batches that are read ahead (data.read_ahead_mb)
  std::int64_t passing = 0;    ///< more, while a save or a restore lasts
  std::int64_t programs = 0;   ///< GPUs: what CUDA, its libraries and pinned buffers take; an estimate
  std::int64_t capacity = 0;   ///< of the node; 0: unknown
  std::int64_t total() const {
    return ranks + moments + snapshots + partners + saves + tokens + passing + programs;
  }
  bool operator==(const HostMemory&) const = default;
};

/// `plan`: complete up to its local level. All zero where ranks run another program than ours. Throws Error
/// (impossible) when the node has less than that.
HostMemory host_memory_of(const Plan& plan, const config::RunConfig& config,
                          const config::ClusterFacts& facts);

/// For people: what takes how much, and the sum.
std::vector<std::string> host_memory_says(const HostMemory& memory);

}  // namespace holdfast::launcher

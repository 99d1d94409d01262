#pragma once
// What a job takes of the host memory of each of its nodes, part by part, and whether the node has it. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Plan;

/// One part, in bytes of one node with all its ranks.
struct HostPart {
  std::string name;
  std::int64_t bytes = 0;
  bool in_shm = false;  ///< it lies in files of /dev/shm, whose size limits it, too
  bool bound = false;   ///< a stated upper bound; else what is allocated
  bool operator==(const HostPart&) const = default;
};

struct HostMemory {
  std::int64_t state = 0;         ///< one copy of what the node's ranks hold: parameters and both moments
  std::vector<HostPart> parts;    ///< none of 0 bytes; empty where ranks run another program than ours
  std::int64_t capacity = 0;      ///< of the node; 0: unknown
  std::int64_t shm_capacity = 0;  ///< size of its /dev/shm; 0: unknown
  std::int64_t total() const;
  std::int64_t total_in_shm() const;
  /// Of the part with this name; 0: there is none.
  std::int64_t bytes_of(const std::string& name) const;
  bool operator==(const HostMemory&) const = default;
};

/// `plan`: complete up to its local level. What the kernel itself takes, and what it keeps of files in its
/// page cache and gives up when memory is short, is no part. Of another program than ours: throws Error
/// (impossible) when the node has less than rank.buffers_gib for it.
HostMemory host_memory_of(const Plan& plan, const config::RunConfig& config,
                          const config::ClusterFacts& facts);

/// Bytes that a rank of another program may have in snapshot buffers, in one generation; nothing: there are
/// none, or it is not known of what memory.
std::optional<std::int64_t> buffers_of_a_rank(const Plan& plan, const config::RunConfig& config,
                                              const config::ClusterFacts& facts);

/// For people: a line for each part, then the sums and what they are compared with.
std::vector<std::string> host_memory_says(const HostMemory& memory);

}  // namespace holdfast::launcher

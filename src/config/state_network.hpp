#pragma once
// Which device carries state between nodes, as UCX names it.
#include <string>

#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// checkpoint.network where it is set; else the NIC of the rank's GPU ("mlx5_0:1": its first port); else the
/// control interface. "" (any device) where the facts name none, as in bare mode without a cluster file.
std::string state_network(const RunConfig& config, const ClusterFacts& facts, int local_rank);

}  // namespace holdfast::config

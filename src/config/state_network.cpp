#include "src/config/state_network.hpp"

#include "src/base/as_size.hpp"

namespace holdfast::config {

std::string state_network(const RunConfig& config, const ClusterFacts& facts, int local_rank) {
  if (!config.checkpoint.network.empty()) return config.checkpoint.network;
  const auto gpu = as_size(local_rank);
  if (local_rank >= 0 && gpu < facts.gpus.size() && !facts.gpus[gpu].nic.empty())
    return facts.gpus[gpu].nic + ":1";
  return facts.control_interface;
}

}  // namespace holdfast::config

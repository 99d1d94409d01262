#include "src/config/state_network.hpp"

namespace holdfast::config {

std::string state_network(const RunConfig& config, const ClusterFacts& facts, int local_rank) {
  if (!config.checkpoint.network.empty()) return config.checkpoint.network;
  const auto slot = static_cast<std::size_t>(local_rank);
  if (local_rank >= 0 && slot < facts.slots.size() && !facts.slots[slot].nic.empty())
    return facts.slots[slot].nic + ":1";
  return facts.control_interface;
}

}  // namespace holdfast::config

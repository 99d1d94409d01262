#include "src/train/local/partner_plan.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/partner_nodes.hpp"

namespace holdfast::train {

bool needs_partners(const shard::Mesh& mesh, int ranks_per_node) {
  if (mesh.split_optimizer) return true;
  for (int rank = 0; rank < mesh.world; ++rank) {
    bool elsewhere = false;
    for (int replica = 0; replica < mesh.replicas; ++replica)
      elsewhere |= (replica * mesh.group + rank % mesh.group) / ranks_per_node != rank / ranks_per_node;
    if (!elsewhere) return true;
  }
  return false;
}

std::vector<int> copy_destinations(const shard::Mesh& mesh, int ranks_per_node,
                                   std::span<const int> scalable_unit_of_node) {
  expects(ranks_per_node > 0, "nodes have ranks");
  const int nodes = mesh.world / ranks_per_node;
  if (nodes < 2 || mesh.world % ranks_per_node != 0 || !needs_partners(mesh, ranks_per_node)) return {};
  const auto partner = config::partner_nodes(nodes, scalable_unit_of_node);
  std::vector<int> destinations;
  for (int rank = 0; rank < mesh.world; ++rank)
    destinations.push_back(partner[rank / ranks_per_node] * ranks_per_node + rank % ranks_per_node);
  return destinations;
}

std::vector<int> scalable_units_of_slots(std::string_view plan_json, int nodes) {
  std::vector<std::string> names(nodes);
  try {
    const auto plan = json_from(plan_json);
    for (const auto& node : plan.at("plan").at("nodes"))
      if (const int slot = node.at("slot"); slot >= 0)
        names.at(slot) = node.at("scalable_unit").get<std::string>();
  } catch (const std::exception&) {
    return {};
  }
  std::map<std::string, int> numbers;
  std::vector<int> units;
  for (const std::string& name : names) {
    if (name.empty()) return {};
    units.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return units;
}

Partners partners_of(int rank, std::span<const int> destinations) {
  if (destinations.empty()) return {};
  const auto source = std::find(destinations.begin(), destinations.end(), rank);
  expects(source != destinations.end(), "everybody keeps a copy of somebody");
  return {destinations[rank], static_cast<int>(source - destinations.begin())};
}

}  // namespace holdfast::train

#include "src/train/local/partner_plan.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "src/base/error.hpp"

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
  expects(scalable_unit_of_node.empty() || std::ssize(scalable_unit_of_node) == nodes,
          "a scalable unit for every node");
  const auto unit = [&](int node) { return scalable_unit_of_node.empty() ? 0 : scalable_unit_of_node[node]; };
  // With the nodes of a scalable unit beside each other, a step as wide as the largest one leaves every one
  // that can be left: nobody else is as many nodes ahead.
  std::vector<int> order(nodes);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return unit(a) < unit(b); });
  std::map<int, int> sizes;
  int step = 0;
  for (int node = 0; node < nodes; ++node) step = std::max(step, ++sizes[unit(node)]);
  if (step == nodes) step = 1;

  std::vector<int> destinations(mesh.world);
  for (int i = 0; i < nodes; ++i)
    for (int place = 0; place < ranks_per_node; ++place)
      destinations[order[i] * ranks_per_node + place] = order[(i + step) % nodes] * ranks_per_node + place;
  return destinations;
}

std::vector<int> scalable_units_of_slots(std::string_view plan_json, int nodes) {
  std::vector<std::string> names(nodes);
  try {
    const auto plan = nlohmann::json::parse(plan_json);
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

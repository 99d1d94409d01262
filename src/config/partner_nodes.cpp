#include "src/config/partner_nodes.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "src/base/error.hpp"

namespace holdfast::config {

std::vector<int> partner_nodes(int nodes, std::span<const int> unit_of_node) {
  if (nodes < 2) return {};
  expects(unit_of_node.empty() || std::ssize(unit_of_node) == nodes, "a scalable unit for every node");
  const auto unit = [&](int node) { return unit_of_node.empty() ? 0 : unit_of_node[node]; };
  // With the nodes of a scalable unit beside each other, a step as wide as the largest one leaves every one
  // that can be left: nobody else is as many nodes ahead.
  std::vector<int> order(nodes);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return unit(a) < unit(b); });
  std::map<int, int> sizes;
  int step = 0;
  for (int node = 0; node < nodes; ++node) step = std::max(step, ++sizes[unit(node)]);
  if (step == nodes) step = 1;
  std::vector<int> partners(nodes);
  for (int i = 0; i < nodes; ++i) partners[order[i]] = order[(i + step) % nodes];
  return partners;
}

}  // namespace holdfast::config

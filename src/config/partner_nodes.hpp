#pragma once
// Which node keeps copies of which other one's state: asked by ranks of our trainer, and by agents.
#include <span>
#include <vector>

namespace holdfast::config {

/// For each of `nodes`, who keeps its copy: in another scalable unit where there are such nodes. A
/// permutation without fixed points; empty: there is no other node. `unit_of_node`: the failure domain of
/// each; empty: not known, and the next node it is.
std::vector<int> partner_nodes(int nodes, std::span<const int> unit_of_node = {});

}  // namespace holdfast::config

#pragma once
// Which node sits where: scalable units and the order of nodes in them. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "src/config/cluster_facts.hpp"

namespace holdfast::launcher {

/// Nodes of one scalable unit, by name. A name of "" stands for nodes that the cluster file does not know.
struct ScalableUnitNodes {
  std::string scalable_unit;
  std::vector<std::string> nodes;
};

/// Order of names as people count: dgx2 before dgx10.
bool name_before(std::string_view a, std::string_view b);

/// `nodes` by scalable unit, these in the cluster file's order, empty ones left out, unknown nodes last.
/// Throws Error (usage) when the file puts a node into two of them or a name is given twice.
std::vector<ScalableUnitNodes> by_scalable_unit(const config::ClusterFacts& facts,
                                                const std::vector<std::string>& nodes);

/// The first `count` nodes of the cluster by scalable unit and name: what a plan assumes before SLURM has
/// picked, but for those of `without`. Throws Error (impossible) when the cluster has fewer; `active` and
/// `spares` add up to the count and are for the message.
std::vector<std::string> hypothetical_nodes(const config::ClusterFacts& facts, int active, int spares,
                                            const std::vector<std::string>& without = {});

}  // namespace holdfast::launcher

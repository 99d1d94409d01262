#pragma once
// Who keeps a copy of whose local snapshots: a pure function of the plan.
#include <span>
#include <string_view>
#include <vector>

#include "src/shard/mesh.hpp"

namespace holdfast::train {

/// Of one rank: who keeps its copy, and whose copy it keeps.
struct Partners {
  int destination = -1, source = -1;
  bool operator==(const Partners&) const = default;
};

/// Some rank's pieces are held by no rank of another node: full sharding over all nodes, an optimizer state
/// that replicas share out, or replicas on one node. `ranks_per_node`: of ranks 0, 1, ... each.
bool needs_partners(const shard::Mesh& mesh, int ranks_per_node);

/// For every rank, who keeps its copy: the rank with the same place on another node, in another scalable unit
/// where there are such nodes. A permutation without fixed points. Empty where no copies are needed or there
/// is no other node, or where nodes have different numbers of ranks. `scalable_unit_of_node`: the failure
/// domain of each slot; empty: not known, and the next node it is.
std::vector<int> copy_destinations(const shard::Mesh& mesh, int ranks_per_node,
                                   std::span<const int> scalable_unit_of_node = {});

/// The scalable unit of each of `nodes` slots, as numbers, by the text of the run directory's plan.json;
/// empty where it does not say it of all of them.
std::vector<int> scalable_units_of_slots(std::string_view plan_json, int nodes);

/// Of one rank; of nobody where `destinations` is empty.
Partners partners_of(int rank, std::span<const int> destinations);

}  // namespace holdfast::train

#pragma once
// Which nodes of an allocation are kept as spares. Pure. Who replaces a failed node later is
// launcher/supervise/policy.hpp's matter.
#include <string>
#include <vector>

#include "launcher/plan/topology.hpp"

namespace holdfast::launcher {

/// `count` of the nodes, spread over the scalable units: one after the other gives one, the larger first, so
/// that each keeps a spare near and none bleeds. The batch host comes first, since losing it costs more than
/// losing another: it should not hold ranks too. Every other one gives its last node by name. `batch_host`
/// may be "".
std::vector<std::string> spread_spares(const std::vector<ScalableUnitNodes>& units, int count,
                                       const std::string& batch_host);

}  // namespace holdfast::launcher

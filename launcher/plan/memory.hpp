#pragma once
// What one rank keeps in memory: exact for state and for the buffers of its shards (the trainer plans the
// same bytes; a test compares), to a thousandth for activations. Left out: a few MB in which sums are added,
// tokens, the program itself. Pure.
#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// `group` ranks share one copy of the parameters, `replicas` groups exist. Whether it fits: fit.hpp.
Memory memory_of(const config::RunConfig& config, const config::ModelShape& model,
                 const config::ClusterFacts& facts, int group, int replicas);

}  // namespace holdfast::launcher

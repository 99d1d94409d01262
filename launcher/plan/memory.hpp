#pragma once
// What one rank keeps in memory: exact for state and buffers, an estimate for activations. Pure.
#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// `group` ranks share one copy of the state, `replicas` groups exist. Throws Error (impossible), naming the
/// largest part, when state and buffers alone exceed the capacity; activations, being estimated, never refuse
/// a plan.
Memory memory_of(const config::RunConfig& config, const config::ModelShape& model,
                 const config::ClusterFacts& facts, int group, int replicas);

}  // namespace holdfast::launcher

#pragma once
// Which losses a plan survives, at which level of its checkpoints, and what the local level takes. Pure.
#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// Of a plan with its nodes, sharding and memory.
LocalPlan local_plan_of(const Plan& plan, const config::RunConfig& config);
/// Of a plan with its local level.
Survival survival_of(const Plan& plan, const config::RunConfig& config, const config::ClusterFacts& facts);

}  // namespace holdfast::launcher

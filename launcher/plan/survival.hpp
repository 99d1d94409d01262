#pragma once
// Which losses a plan survives, at which level of its checkpoints, and what the local level takes. Pure.
#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// Of a plan with its nodes, sharding and memory.
LocalPlan local_plan_of(const Plan& plan, const config::RunConfig& config);
/// Of a plan with its local level.
/// What Holdfast knows of a program that is not holdfast-train, and can do for it; empty for ours.
std::vector<std::string> program_says(const config::RunConfig& config);
Survival survival_of(const Plan& plan, const config::RunConfig& config, const config::ClusterFacts& facts);

/// Of a plan that knows what it can shrink by: what happens when spares have run out, and what a replica less
/// would cost. Sentences.
std::vector<std::string> when_short_says(const Plan& plan, const config::Supervise& limits);

}  // namespace holdfast::launcher

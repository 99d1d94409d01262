#pragma once
// What is recorded when the next attempt is planned, and where a new leader begins. Pure.
#include <vector>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {

/// The placement of the last attempt, if all of its nodes are in this allocation, else the planned one. A
/// smaller placement is kept only in the allocation that had lost nodes. Before the first attempt of a job,
/// nodes with a bad record leave their slots (with_better_nodes).
std::vector<int> placement_to_begin_with(const Roster& roster, const RunState& state);

/// Seconds that the next attempt waits. The first one of a job does not: the queue has been its wait.
double wait_before_next(const RunState& state);

/// The events of the plan: spares that take slots, another size, the attempt itself.
std::vector<Event> plan_events(const Decision& decision, const std::vector<int>& placement_before,
                               int attempt, const Roster& roster, const RunState& state,
                               const Shrinking& shrinking);

}  // namespace holdfast::launcher

#pragma once
// What is recorded when an attempt ends: its cause, its kind (budget_table.hpp), and what follows for nodes.
// What is done next is the policy's (policy.hpp). Pure.
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {

/// What is known at the end beside the failure.
struct EndFacts {
  const RunState& state;  ///< its last attempt ends
  const Roster& roster;
  std::int64_t step = 0;  ///< that its ranks have come to
  /// Since the failure was first reported; nothing: it was not, and Failure::silent_s counts.
  std::optional<double> reported_s = {};
  double decided_s = 0;                 ///< the part of that in which the diagnosis waited
  std::vector<std::string> signs = {};  ///< further evidence, of the culprit's node
};
events::AttemptEnded end_by(const Failure& failure, const EndFacts& facts);
/// The end of an attempt that the end of the run cuts short: it costs nothing.
events::AttemptEnded end_with_run(const std::string& status, int attempt, std::int64_t step);
/// The same, where its ranks have not reported their progress: what is assumed of it, from the time until
/// `alive_at` (Unix time), when they last may have made any.
void assume_progress(events::AttemptEnded& ended, const AttemptRecord& live, double alive_at,
                     double assumed_progress_s);

/// Takes back the eviction of nodes by a sign that has evicted supervise.max_evictions nodes already.
void keep_within_evictions(Failure& failure, const RunState& state, const Roster& roster,
                           const config::Supervise& limits);
/// Which nodes are evicted and which are suspects after this failure, as events.
std::vector<Event> nodes_after(const Failure& failure, const RunState& state, const Roster& roster,
                               const config::Supervise& limits);

}  // namespace holdfast::launcher

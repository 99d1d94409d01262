#pragma once
// A comparison that must be equal was not: silent data corruption. State that was written since the last
// comparison that came out equal may be wrong, at every level. Pure.
#include <vector>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/rank_promises.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct Corruption {
  std::vector<Event> events;  ///< what is not trusted any more: state and nodes
  Failure failure;            ///< of the attempt
};
/// `accused`: nodes of the ranks that differ, each once. `step`: that the ranks have come to. A single
/// accused node leaves, until `limits.max_evictions` nodes have left for this reason. Without
/// RankPromises::our_verdicts the comparison is a claim, which makes no node leave (diagnose/signs.hpp).
Corruption judge(const control::RankDoubt& what, const std::vector<int>& accused, std::int64_t step,
                 const RunState& state, const Roster& roster, const config::Supervise& limits,
                 const config::RankPromises& promises = {});

}  // namespace holdfast::launcher

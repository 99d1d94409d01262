#pragma once
// Faults that an agent can inject on its own node, for `holdfast drill` (launcher/drill/faults.hpp has the
// expected effects). Only where drill.allowed is set.
//
// - Of a rank's process: kill_rank ends it by SIGKILL, term_rank by SIGTERM; stop_rank stops it, so that it
//   lives and is silent.
// - The same with a sign: oom_rank and xid_79 end it by SIGKILL, and the node reports that memory ran out, or
//   that a GPU fell off the bus.
// - Of the node: drop_local deletes the files of the local level. kill_agent ends this agent, and its
//   guardian starts another; freeze_agent holds it for `seconds`. kill_node ends every process of the run on
//   this node, the guardian included: from outside the node looks dead.
#include <optional>
#include <string>

#include "launcher/agent/ranks/node_system.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct AgentFault {
  bool at_rank = false;
  int signal = 0;                     ///< at_rank
  std::optional<control::Sign> sign;  ///< reported before; the caller fills in its rank
};
/// Nothing: not a fault that an agent injects; perhaps one that a rank injects into itself.
std::optional<AgentFault> agent_fault_called(const std::string& fault);

/// Injects a fault that is not in a rank. May not return. `local_level`: its folder; empty: none.
void inject_at_node(const control::Inject& fault, NodeSystem& node, const std::filesystem::path& local_level);

}  // namespace holdfast::launcher

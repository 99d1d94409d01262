#pragma once
// Faults that an agent can inject on its own node, for `holdfast drill` (launcher/drill/faults.hpp has the
// expected effects). Only where drill.allowed is set.
//
//   kill_rank     SIGKILL for the rank's process
//   term_rank     SIGTERM
//   stop_rank     SIGSTOP: the process lives and is silent
//   oom_rank      SIGKILL, and the node reports that memory ran out
//   xid_79        SIGKILL, and the node reports that a GPU fell off the bus
//   drop_local    the files of the local level are deleted
//   kill_agent    SIGKILL for this agent; its guardian starts another
//   freeze_agent  this agent holds for `seconds`
//   kill_node     SIGKILL for every process of the run on this node, the guardian included: from outside the
//   node
//                 looks dead
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

#pragma once
// Faults that an agent can bring about on its own node, for `holdfast drill` (launcher/drill/faults.hpp says
// what must come of them). Only where drill.allowed.
//
//   kill_rank     SIGKILL for the rank's process
//   term_rank     SIGTERM
//   stop_rank     SIGSTOP: it lives and says nothing
//   oom_rank      SIGKILL, and the node reports that memory ran out
//   xid_79        SIGKILL, and the node reports that a GPU fell off the bus
//   drop_local    the files of the local level go
//   kill_agent    SIGKILL for this agent; its guardian starts another
//   freeze_agent  this agent holds for `seconds`
//   kill_node     every process of the run here goes, the guardian too: what a dead node looks like from
//                 outside, as far as its owner may do that
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/agent/children.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/loop.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct Blow {
  bool at_rank = false;
  int signal = 0;                     ///< at_rank
  std::optional<control::Sign> sign;  ///< reported before; its rank is to be filled in
};
/// Nothing: no fault of an agent's; perhaps a rank's own.
std::optional<Blow> blow_called(const std::string& fault);

struct Surface {
  control::Loop* loop;
  Children* children;
  const RunDir* run;
  std::string node;
  std::string local;  ///< checkpoint.local
};
/// The faults that are not at a rank. May not return.
void break_node(const control::Inject& fault, const Surface& here);

}  // namespace holdfast::launcher

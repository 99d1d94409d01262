#pragma once
// A program outside the run sends one message to an agent and gets one answer. An order for the leader may go
// to any agent; a fault goes to the agent of its node.
#include <chrono>
#include <string>

#include "launcher/supervise/roster.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Gives the order to the leader through whichever agent answers first, and returns the leader's answer. Asks
/// the next agent when one does not answer, or knows no leader. Throws Error (transient) when none has
/// answered within `limit`, (usage) when the run directory has no agents.
control::OrderTaken give_order(const RunDir& run, const control::Order& order,
                               std::chrono::milliseconds limit);

/// Tells the agent of `node` to inject a fault. Throws Error (transient) when it does not answer within
/// `limit`.
control::OrderTaken inject(const RunDir& run, const std::string& node, const control::Inject& fault,
                           std::chrono::milliseconds limit);

}  // namespace holdfast::launcher

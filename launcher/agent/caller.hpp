#pragma once
// Somebody outside the run speaks with it: one message to an agent, one answer. Any agent will do for an
// order to the leader; a fault is for the agent that it names.
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

/// Tells the agent of `node` to break something. Throws Error (transient) when it does not answer within
/// `limit`.
control::OrderTaken inject(const RunDir& run, const std::string& node, const control::Inject& fault,
                           std::chrono::milliseconds limit);

}  // namespace holdfast::launcher

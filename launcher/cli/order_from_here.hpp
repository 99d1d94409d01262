#pragma once
// An order to a run, as the user of this machine gives it.
#include <string>

#include "src/base/run_dir.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Gives an order through the run's agents, without a look at the record. Throws Error (transient) when none
/// has answered within `limit`.
control::OrderTaken ask_from_here(const RunDir& run, control::Order::Verb verb, const std::string& node,
                                  std::chrono::milliseconds limit);

/// Seconds in which an agent must have answered.
constexpr int order_limit_s = 15;

/// `node`: for evict. The leader's answer; throws Error as give_order() does, and at once (usage or
/// transient) where the run has no agents that could be asked.
control::OrderTaken order_from_here(const RunDir& run, control::Order::Verb verb, const std::string& node);

}  // namespace holdfast::launcher

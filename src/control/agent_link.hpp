#pragma once
#include <memory>

#include "src/control/rank_link.hpp"

namespace holdfast::control {

/// The rank link of a supervised rank. A thread of its own owns the connection. When the agent is replaced by
/// a new process, the link connects again and repeats the messages that were not answered.
std::unique_ptr<RankLink> make_agent_link(const RankEnv& place);

}  // namespace holdfast::control

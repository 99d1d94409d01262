#pragma once
#include <memory>

#include "src/control/rank_link.hpp"

namespace holdfast::control {

/// The rank link of a supervised rank. One thread of its own keeps the connection; when the agent is replaced
/// by a new process, it connects again and repeats what has had no answer yet.
std::unique_ptr<RankLink> make_agent_link(const RankEnv& place);

}  // namespace holdfast::control

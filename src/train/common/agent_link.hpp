#pragma once
#include <memory>

#include "src/base/clock.hpp"
#include "src/base/rank_env.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::train {

/// Connects to the agent named by `place` (an Error when it does not answer within `limit`), or returns the
/// link of bare mode. A process has one such link at a time: it is a client as those of other programs
/// (client/), which connects again to an agent that replaces another one, and repeats what had no answer.
std::unique_ptr<control::RankLink> make_rank_link(const std::optional<RankEnv>& place,
                                                  Millis limit = Millis(10000));

}  // namespace holdfast::train

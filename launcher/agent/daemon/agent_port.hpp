#pragma once
// The TCP port of an agent: the first of its node's ports that is free.
#include <functional>

#include "launcher/supervise/roster.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

/// Throws Error (transient) when another agent of this run listens on one of them, or when all are taken; it
/// says by whom.
[[nodiscard]] control::Loop::Handle listen_for_agents(control::Loop& loop, const RunDir& run,
                                                      const Roster::Node& node, const control::Key& secret,
                                                      std::function<void(control::ChannelPtr)> accepted);

/// The ports where programs of torch meet begin here.
inline constexpr int master_port_base = 29500;

/// A port on which a program can listen now: one that this machine does not use otherwise, if there is any.
/// The search begins at `first`. 0: none was found.
int find_free_port(int first);

}  // namespace holdfast::launcher

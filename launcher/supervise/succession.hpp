#pragma once
// Which lines of the event log count. A leader that was stopped between its look at the terms and its write
// puts lines into its file after another has folded the log and gone on without them. So every leader's first
// line says how far it has read, and what was written behind that is void: all leaders to come fold the same
// log as it did. Pure.
#include <nlohmann/json.hpp>
#include <vector>

namespace holdfast::launcher {

/// For the `leader_elected` of a leader that has read `events` (those that count, in order): the last one's
/// term and number. {0, 0}: it has read none.
nlohmann::json read_so_far(const std::vector<nlohmann::json>& events);

/// `files`: the lines of each term's file, by term, lowest first. From the newest leader backwards: all of
/// its lines count, then those of the term whose last line it had read, up to that one, and so on. A first
/// line that does not say (it was written before this rule) lets everything before it count.
std::vector<nlohmann::json> that_count(std::vector<std::vector<nlohmann::json>> files);

}  // namespace holdfast::launcher

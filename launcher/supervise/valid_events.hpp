#pragma once
// Which lines of the event log are valid. A leader that was stopped between its check of the terms and its
// write may append lines to its file after another one has replayed the log and gone on without them. So the
// first line of every leader says how far it has read, and lines behind that are void: all later leaders
// replay the same log as it did. Pure.
#include <vector>

#include "launcher/record/events.hpp"

namespace holdfast::launcher {

/// For the `leader_elected` of a leader that has read `entries` (the valid ones, in order): term and number
/// of the last one. {0, 0}: it has read none.
events::LastRead last_read(const std::vector<LogEntry>& entries);

/// `files`: the lines of each term's file, by term, lowest first. From the newest leader backwards: all of
/// its lines are valid, then those of the term whose last line it had read, up to that one, and so on. Behind
/// a first line without `after` (it was written before this rule) everything is valid.
std::vector<LogEntry> valid_events(std::vector<std::vector<LogEntry>> files);

}  // namespace holdfast::launcher

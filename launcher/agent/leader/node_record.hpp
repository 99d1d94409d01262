#pragma once
// What events say of a node beyond this run: entries for the ledger, and commands for the administrator.
// Pure.
#include <optional>
#include <string>

#include "launcher/record/events.hpp"
#include "launcher/supervise/ledger.hpp"

namespace holdfast::launcher {

/// For the ledger: an attempt that ended on a node, by a fault of the node (LedgerEntry::hardware) or of the
/// program there, or a spare that was lost. Nothing for any other event. `job`: job id and restart count.
std::optional<LedgerEntry> ledger_entry(const LogEntry& event, const std::string& job);
/// The command that drains a node whose hardware has failed in SLURM, or "".
std::string admin_line(const events::AttemptEnded& ended);

}  // namespace holdfast::launcher

#pragma once
// What is to be remembered of a node beyond this run, and what only an administrator can do about it: by the
// events that say so. Pure.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "launcher/supervise/ledger.hpp"

namespace holdfast::launcher {

/// For the ledger of nodes: an attempt that ended on a node, by its fault (LedgerEntry::hardware) or by that
/// of what ran there, or a spare that was lost. Nothing for any other event. `job`: job id and restart count.
std::optional<LedgerEntry> ledger_entry(const nlohmann::json& event, const std::string& job);
/// The line that takes a node whose hardware has failed out of SLURM's hands, or "".
std::string admin_line(const nlohmann::json& event);

}  // namespace holdfast::launcher

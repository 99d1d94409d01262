#pragma once
// What an agent process leaves for the next one about the ranks that it started itself: their pids, and from
// the guardian, whose children they are once their agent is dead, how they ended. In the node's scratch.
#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/agent/scratch.hpp"

namespace holdfast::launcher {

struct RankRecord {
  int rank = -1, attempt = 0;
  pid_t pid = 0;
  std::optional<int>
      status;  ///< exit code or 128 + signal; nothing: it lives, or its agent has waited for it
};

/// The agent's, once it has started the rank. Throws Error.
void keep_rank_record(const Scratch& scratch, const RankRecord& record);
/// The guardian's, of any process that it has waited for: kept if it was a rank. Throws Error.
void keep_rank_end(const Scratch& scratch, pid_t pid, int status);
std::vector<RankRecord> rank_records(const Scratch& scratch);
/// The guardian's, before its first agent: an earlier guardian's ranks are not its children.
void remove_rank_records(const Scratch& scratch);

}  // namespace holdfast::launcher

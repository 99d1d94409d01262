#pragma once
// Records of the ranks that an agent started itself, for the next agent: their pids, how they ended, from the
// guardian, whose children they are once their agent is dead, and the final state that one of them has
// reported: it does so once. They lie in the node's scratch folder.
#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/agent/ranks/scratch.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct RankRecord {
  int rank = -1, attempt = 0;
  pid_t pid = 0;
  /// Exit code or 128 + signal; nothing: it lives, or its agent has waited for it.
  std::optional<int> status;
  std::optional<control::RankFinished> finished = {};  ///< with its final state
};

/// Called by the agent, once it has started the rank. Throws Error.
void keep_rank_record(const Scratch& scratch, const RankRecord& record);
/// Called by the agent, before it tells the rank that it has taken this. Throws Error.
void keep_final_state(const Scratch& scratch, const control::RankFinished& finished);
/// Called by the guardian, for any process that it has waited for: recorded if it was a rank. Throws Error.
void keep_rank_end(const Scratch& scratch, pid_t pid, int status);
std::vector<RankRecord> rank_records(const Scratch& scratch);
/// Called by the guardian, before its first agent: ranks of an earlier guardian are not its children.
void remove_rank_records(const Scratch& scratch);

}  // namespace holdfast::launcher

#pragma once
// The votes of a node's ranks on checkpoints, kept by their agent until the commit outcome, and merged for
// the leader: one message for the ranks of one (attempt, step), since at a thousand ranks a message of each
// would take the leader's loop seconds. Pure; the simulator uses it, too.
//
// When the agent tells the leader:
// - at once, when every living rank of the node has voted, or a rank says no: a checkpoint without it is not
//   waited for;
// - else `vote_patience` after the first vote that was not told, so that the leader can say who is missing;
// - all votes without an outcome again, when a leader connects: another one has taken over, or this one has
//   lost the connection. Ranks repeat theirs to an agent that was started again.
//
// So the leader may hear a vote twice, and the votes of a node in several messages. Both are allowed.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

inline constexpr Millis vote_patience{1000};

class VoteMerger {
 public:
  /// A vote of a rank, new or repeated. True: the leader is to be told now. `living`: ranks of that attempt
  /// on this node that have not ended.
  bool take(const control::RankVote& vote, std::size_t living);
  /// The votes on the checkpoint that were not told so far, by rank; they then count as told. Several
  /// messages only where one would be longer than a line may be.
  std::vector<control::NodeVotes> untold(int attempt, std::int64_t step);
  /// All votes, told or not.
  std::vector<control::NodeVotes> all();
  /// The commit outcome is known.
  void settled(int attempt, std::int64_t step);
  void forget_older(int attempt);

 private:
  struct Vote {
    bool ok = false;
    std::string payload;
    std::int64_t stall_us = 0;
    bool told = false;
  };
  std::map<std::pair<int, std::int64_t>, std::map<int, Vote>> votes_;  ///< by (attempt, step), then by rank
};

}  // namespace holdfast::launcher

#pragma once
// Counts the answers to a candidate: half of the agents that are not on record as lost must answer that they
// hear no leader either, and none may answer that it hears one. Pure; election.hpp collects the answers, and
// O_EXCL on the shared file system lets one of several winners succeed.
//
// - Somebody denies: lost.
// - Half grant, more than oneself: won.
// - Oneself alone grants, of two: open; at the last call SLURM is asked, which answers unless we are cut off.
// - Fewer than half grant: open; at the last call lost.
#include <set>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::launcher {

class ElectionCount {
 public:
  /// `lost[n]`: node n is on record as lost: it is no voter, and neither its grant nor its denial counts.
  explicit ElectionCount(std::vector<bool> lost) : lost_(std::move(lost)) {}

  void answered(int node, const control::Answer& answer);
  enum class Outcome { open, lost, won, ask_slurm };
  Outcome outcome(bool last_call) const;

 private:
  std::vector<bool> lost_;
  std::set<int> granted_, denied_;
};

/// May a candidate with these answers lead? `voters`: agents not known to be lost, the candidate among them.
bool enough(int granted, int denied, int voters);

}  // namespace holdfast::launcher

#pragma once
// Counts the answers to a candidate: half of the agents that are not on record as lost must answer that they
// hear no leader either, and none may answer that it hears one. Pure; election.hpp collects the answers, and
// O_EXCL on the shared file system lets one of several winners succeed.
//
//   granted, denied, voters          while answers may still come    at the last call
//   somebody denies                  lost                            lost
//   fewer than half grant            open                            lost
//   half grant, more than oneself    won                             won
//   oneself alone, of two            open                            ask SLURM: it answers unless we are cut
//   off
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

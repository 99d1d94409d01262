#include "launcher/agent/leader/election_count.hpp"

#include <algorithm>

namespace holdfast::launcher {

bool enough(int granted, int denied, int voters) { return denied == 0 && 2 * granted >= voters; }

void ElectionCount::answered(int node, const control::Answer& answer) {
  if (!lost_[node]) (answer.grant ? granted_ : denied_).insert(node);
}

ElectionCount::Outcome ElectionCount::outcome(bool last_call) const {
  const int voters = static_cast<int>(std::count(lost_.begin(), lost_.end(), false));
  const int granted = static_cast<int>(granted_.size()), denied = static_cast<int>(denied_.size());
  if (denied > 0) return Outcome::lost;
  if (!enough(granted, denied, voters)) return last_call ? Outcome::lost : Outcome::open;
  // Half of two agents is the candidate alone.
  if (voters == 2 && granted == 1) return last_call ? Outcome::ask_slurm : Outcome::open;
  return Outcome::won;
}

}  // namespace holdfast::launcher

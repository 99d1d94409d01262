#include "launcher/supervise/clear_watch.hpp"

#include <algorithm>

namespace holdfast::launcher {

/// The nodes that are left when a file system answers again get as much time as any: they end their ranks
/// one after another.
ClearWatch::Finding ClearWatch::judge(int uncleared, int placed, double told, double spent_s, double now) {
  if (uncleared == 0) return Finding::nothing;
  const bool most = 2 * uncleared >= placed;
  if (most) most_at_ = now;
  const double waited_s = now - (most ? told : std::max(told, most_at_));
  if (waited_s <= limits_.clear_s) return Finding::nothing;
  if (!most) return Finding::node;
  return spent_s + waited_s >= limits_.infrastructure_s ? Finding::overdue : Finding::most;
}

void ClearWatch::extend_deadlines(double seconds, double now) {
  most_at_ = std::min(most_at_ + seconds, now);
}

std::string ClearWatch::why(int node, int attempt) const {
  const auto said = said_.find(node);
  if (said == said_.end() || said->second.attempt != attempt || said->second.why.empty()) return "";
  return ": " + said->second.why;
}

}  // namespace holdfast::launcher

// Programs of others. Our own trainer says where it is and hears orders. Another program may do so, too; of
// one that does not, nobody knows how far it is or what it has saved, and the only word it hears is a signal.
//
// clang-format off
//   what is asked                      our trainer, or ranks that spoke     ranks that have not spoken
//   did the attempt bring it forward?  steps and checkpoints say            when all ranks ran for supervise.assumed_progress_s
// clang-format on
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/supervisor.hpp"

namespace holdfast::launcher {

/// Is it known how far this attempt is?
bool Supervisor::reports() const {
  return facts_.own_trainer ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.spoke; });
}

/// What the end of an attempt says of its progress, where the program said nothing.
void Supervisor::tell_progress(nlohmann::json& ended) const {
  if (reports() || !state_.attempt_live()) return;
  const AttemptRecord& live = state_.attempts.back();
  const double ran = live.launched_s ? now_ + unix_offset_ - live.planned_at - *live.launched_s : 0;
  ended["reports"] = false;
  ended["ran_s"] = ran;
  ended["progress_assumed"] = live.launched_s && ran >= limits_.assumed_progress_s;
}

}  // namespace holdfast::launcher

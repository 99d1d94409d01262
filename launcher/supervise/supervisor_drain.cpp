// Drains: the state must reach the shared level soon, because what holds the other levels may go: the whole
// job (stop), or SLURM's patience with a job that has lost its script. An order outlives the attempt and the
// leader that it was given to.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {

void Supervisor::drain(const control::Drain& asked) {
  if (stage_ == Stage::over || state_.verdict) return;
  if (state_.drain && (state_.drain->what.stop || !asked.stop)) return;
  record({{"event", "drain"},
          {"attempt", attempt()},
          {"step", highest_step()},
          {"stop", asked.stop},
          {"reason", asked.reason}});
  if (asked.stop && !worth_saving()) return finish(drained());
  // Ranks that are not being started yet hear of it with their start.
  if (stage_ == Stage::starting || stage_ == Stage::running ||
      (stage_ == Stage::gathering && state_.attempt_live()))
    tell_ranks();
}

void Supervisor::tell_ranks() {
  if (state_.drain) actions_.push_back(TellRanks{state_.drain->what});
}

/// Is there state that only this job's nodes have? In the memory of live ranks, or in the local levels that
/// an attempt left, for the next one to bring to the shared level.
bool Supervisor::worth_saving() const {
  for (auto a = state_.attempts.rbegin(); a != state_.attempts.rend() && a->epoch >= state_.job_epoch; ++a)
    if (a->restored) return !a->ended_at || a->last_step > state_.durable_step;
  return false;
}

RunState::Verdict Supervisor::drained() const {
  std::int64_t reached = highest_step();
  for (const auto& a : state_.attempts)
    if (a.epoch >= state_.job_epoch) reached = std::max(reached, a.last_step);
  const std::int64_t durable = std::max<std::int64_t>(0, state_.durable_step);
  std::string why = state_.drain->what.reason;
  if (reached > durable)
    why += fmt::format("; steps {} to {} did not become durable and have to be done again", durable + 1,
                       reached);
  return {static_cast<int>(Exit::transient), "drained", why, 0};
}

}  // namespace holdfast::launcher

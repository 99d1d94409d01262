#include "launcher/supervise/drain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::launcher {

bool worth_saving(const RunState& state) {
  for (auto a = state.attempts.rbegin(); a != state.attempts.rend() && a->term >= state.job_term; ++a) {
    if (!a->restored) continue;
    // State that may be wrong must not be saved.
    if (state.trusted_step >= 0 && a->number <= state.tainted_attempt) return false;
    return !a->ended_at || a->last_step > state.durable_step;
  }
  return false;
}

bool saves_are_known(const RunState& state, const config::RankPromises& promises) {
  return promises.writes_run_dir || state.durable_step >= 0 || !state.attempted();
}

std::string end_after_signal(int unended, int world, int sent, double after_s) {
  if (unended == 0)
    return fmt::format(": its ranks ended within {:.1f} s of {}", after_s,
                       sent > 0 ? "SIGTERM" : "the order to end");
  return fmt::format(
      ": {} of {} ranks had not ended {:.1f} s after {}, and were killed", unended, world, after_s,
      sent == world ? "SIGTERM"
                    : fmt::format("the order to end (SIGTERM was sent to {} of {})", sent, world));
}

RunOutcome drained(const RunState& state, std::int64_t reached, const std::optional<std::string>& unseen) {
  for (const auto& a : state.attempts)
    if (a.term >= state.job_term) reached = std::max(reached, a.last_step);
  const std::int64_t durable = std::max<std::int64_t>(0, state.durable_step);
  std::string why = state.drain->what.reason;
  if (unseen)
    why += "; what the program saved is not known to Holdfast" + *unseen;
  else if (reached > durable)
    why += fmt::format("; steps {} to {} did not become durable and have to be done again", durable + 1,
                       reached);
  if (state.drain->for_good) return {static_cast<int>(Exit::no_requeue), "stopped", why, 0};
  return {static_cast<int>(Exit::transient), "drained", why, 0};
}

Failure eviction(const RunState& state, const Roster& roster, const std::string& note) {
  expects(!state.evicting.empty(), "a node is to leave");
  const auto& [node, why] = *state.evicting.begin();
  Failure failure;
  failure.kind = Failure::Kind::evicted;
  failure.node = roster.node_called(node);
  failure.evidence = fmt::format("{} leaves: {}{}{}", node, why, note.empty() ? "" : "; ", note);
  return failure;
}

}  // namespace holdfast::launcher

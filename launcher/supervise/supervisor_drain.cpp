// Drains: the state must reach the shared level soon, because the memory that holds the other levels may be
// lost: that of all nodes (stop; SLURM may end a job that has lost its batch script), or of one node (evict).
// An order stays in force in later attempts and under later leaders.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {

void Supervisor::drain(const control::Drain& asked) { drain(asked, false); }

void Supervisor::drain(const control::Drain& asked, bool for_good) {
  if (stage_ == Stage::over || state_.outcome) return;
  const bool known = state_.drain && (state_.drain->what.stop || !asked.stop);
  if (known && (!for_good || state_.drain->for_good)) return;
  record(events::Drain{attempt(), highest_step(), asked.stop, for_good, asked.reason});
  if (known) return;
  if (asked.stop && !worth_saving()) return finish(drained());
  // Ranks that are not being started yet are told at their start.
  if (ranks_hear()) tell_ranks();
}

bool Supervisor::ranks_hear() const {
  return stage_ == Stage::starting || stage_ == Stage::running ||
         (stage_ == Stage::gathering && state_.attempt_live());
}

void Supervisor::tell_ranks() {
  if (const auto asked = state_.asked_of_ranks()) {
    if (state_.paused && asked->stop) actions_.push_back(PauseRanks{false});
    actions_.push_back(TellRanks{*asked});
  }
  if (state_.hold_ranks()) actions_.push_back(PauseRanks{true});
}

/// Is there state that only the nodes of this job have? It may be in the memory of live ranks, or in the
/// local levels of an ended attempt, from which the next one can save it to the shared level.
bool Supervisor::worth_saving() const {
  // Only the live ranks of another program know what they could save.
  if (!facts_.own_trainer && state_.attempt_live() && ranks_hear()) return true;
  for (auto a = state_.attempts.rbegin(); a != state_.attempts.rend() && a->term >= state_.job_term; ++a) {
    if (!a->restored) continue;
    // State that may be wrong must not be saved.
    if (state_.trusted_step >= 0 && a->number <= state_.tainted_attempt) return false;
    return !a->ended_at || a->last_step > state_.durable_step;
  }
  return false;
}

/// Takes the node out: at once if it has no ranks, else when the ranks have saved.
void Supervisor::evict(int n, const std::string& reason) {
  if (lost(n) || state_.evicting.contains(name(n)) || stage_ == Stage::over) return;
  if (slot_of(n) < 0 || !state_.attempt_live()) {
    record(events::NodeEvicted{name(n), reason});
    return;
  }
  record(events::EvictionOrdered{name(n), reason, attempt()});
  if (stopping() || pending_ || stage_ == Stage::gathering)
    return;  // the next attempt does without the node anyway
  // Ranks that have no state yet have nothing to save, where that is known.
  if (stage_ == Stage::clearing || (reports() && !state_.attempts.back().restored)) return fail(eviction(""));
  tell_ranks();
}

Failure Supervisor::eviction(const std::string& note) const {
  expects(!state_.evicting.empty(), "a node is to leave");
  const auto& [node, why] = *state_.evicting.begin();
  Failure failure;
  failure.kind = Failure::Kind::evicted;
  failure.node = roster_.node_called(node);
  failure.evidence = fmt::format("{} leaves: {}{}{}", node, why, note.empty() ? "" : "; ", note);
  return failure;
}

void Supervisor::check_eviction() {
  if (!state_.evicting_since || stopping() || stage_ == Stage::gathering || pending_ ||
      now_ + unix_offset_ < *state_.evicting_since + drain_s_)
    return;
  fail(eviction(
      fmt::format("the ranks have not {} within {} s", ranks_follow() ? "saved" : "ended", drain_s_)));
}

RunOutcome Supervisor::drained() const {
  std::int64_t reached = highest_step();
  for (const auto& a : state_.attempts)
    if (a.term >= state_.job_term) reached = std::max(reached, a.last_step);
  const std::int64_t durable = std::max<std::int64_t>(0, state_.durable_step);
  std::string why = state_.drain->what.reason;
  if (!saves_are_known())
    why += unseen_end();
  else if (reached > durable)
    why += fmt::format("; steps {} to {} did not become durable and have to be done again", durable + 1,
                       reached);
  if (state_.drain->for_good) return {static_cast<int>(Exit::no_requeue), "stopped", why, 0};
  return {static_cast<int>(Exit::transient), "drained", why, 0};
}

}  // namespace holdfast::launcher

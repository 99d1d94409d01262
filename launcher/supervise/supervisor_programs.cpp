// Programs other than holdfast-train, which reports its progress and follows orders. Another program may do
// so too. Of one that does not, neither progress nor saved state is known, and only signals reach it.
//
// clang-format off
//   question                           our trainer, or ranks that report        ranks that have not reported
//   did the attempt bring it forward?  steps and checkpoints say                yes when all ranks ran for supervise.assumed_progress_s
//   told to save, to hold, to evict    they follow                              refused: the ranks would not know
//   told to end                        they save, and end with 75               SIGTERM; obeyed when all have ended, or drain_s
//   what was lost?                     steps since the durable one              not known
// clang-format on
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/supervisor.hpp"

namespace holdfast::launcher {

/// Is the progress of this attempt known?
bool Supervisor::reports() const {
  return facts_.own_trainer ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.reported; });
}

/// Do the ranks of this attempt follow the orders that their agents pass on?
bool Supervisor::ranks_follow() const {
  return facts_.own_trainer ||
         std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.reported; });
}

/// Have ranks been told to end that only signals reach?
bool Supervisor::signalled() const {
  if (ranks_follow() || !ranks_hear()) return false;
  const auto asked = state_.asked_of_ranks();
  // They have not been told to leave a node when the attempt was about to end anyway (evict()).
  return asked && asked->stop && (stopping() || !pending_);
}

/// The exit code after a signal says little: some programs save and end with 0, others are ended by it. And
/// ranks that save alone take different times: none gets less time because another has ended.
void Supervisor::check_signalled() {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.ended; })) return;
  if (stopping()) return finish(drained());
  pending_.reset(), ends_.clear();  // they were told to end: this is not a failure
  fail(eviction("the ranks have ended"));
}

/// Does Holdfast know what the program saves?
bool Supervisor::saves_are_known() const {
  return facts_.own_trainer || state_.durable_step >= 0 || !state_.attempted();
}

/// For a drain of ranks whose saves are not known: a text on how they ended.
std::string Supervisor::unseen_end() const {
  std::string text = "; what the program saved is not known to Holdfast";
  if (!state_.attempt_live() || !signalled()) return text;
  const auto killed = std::count_if(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return !r.ended; });
  const double after = now_ + unix_offset_ - state_.drain->at;
  return killed == 0 ? fmt::format("{}: its ranks ended within {:.1f} s of SIGTERM", text, after)
                     : fmt::format("{}: {} of {} ranks had not ended {:.1f} s after SIGTERM, and were killed",
                                   text, killed, world(), after);
}

/// Adds to the event of the end of an attempt what is assumed of its progress, where the program reported
/// none.
void Supervisor::tell_progress(events::AttemptEnded& ended) const {
  if (reports() || !state_.attempt_live()) return;
  const AttemptRecord& live = state_.attempts.back();
  const double ran = live.launched_s ? now_ + unix_offset_ - live.planned_at - *live.launched_s : 0;
  ended.reports = false;
  ended.ran_s = ran;
  ended.progress_assumed = live.launched_s && ran >= limits_.assumed_progress_s;
}

std::string Supervisor::why_ranks_cannot(const char* what) const {
  return fmt::format(
      "the program does not report to its agents and would not get the order to {}; stop sends it SIGTERM "
      "and gives it {} s",
      what, drain_s_);
}

}  // namespace holdfast::launcher

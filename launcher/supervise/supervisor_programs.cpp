// Programs of others. Our own trainer says where it is and hears orders. Another program may do so, too; of
// one that does not, nobody knows how far it is or what it has saved, and the only word it hears is a signal.
//
// clang-format off
//   what is asked                      our trainer, or ranks that spoke     ranks that have not spoken
//   did the attempt bring it forward?  steps and checkpoints say            when all ranks ran for supervise.assumed_progress_s
//   told to save, to hold, to evict    they follow                          refused: they would not hear it
//   told to end                        they save, and end with 75           SIGTERM; followed when all have ended, or drain_s
//   what was lost?                     steps since the durable one          not known
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

/// Do the ranks of this attempt hear what their agents are told?
bool Supervisor::ranks_follow() const {
  return facts_.own_trainer ||
         std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.spoke; });
}

/// Have ranks been told to end that hear nothing but signals?
bool Supervisor::signalled() const {
  if (ranks_follow() || !ranks_hear()) return false;
  const auto asked = state_.asked_of_ranks();
  // They have not been told to leave a node when the attempt was about to end anyway (evict()).
  return asked && asked->stop && (stopping() || !pending_);
}

/// A code after a signal says little: some programs save and end with 0, others die of it. And ranks that
/// save alone need as long as they need: none is waited for less because another has ended.
void Supervisor::check_signalled() {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.ended; })) return;
  if (stopping()) return finish(drained());
  pending_.reset(), ends_.clear();  // asked for, and nobody's failure
  fail(eviction("the ranks have ended"));
}

/// Do checkpoints that Holdfast knows of hold what the program saves?
bool Supervisor::saves_are_known() const {
  return facts_.own_trainer || state_.durable_step >= 0 || !state_.attempted();
}

/// For a drain of ranks whose saves are not known: what can be said of their end.
std::string Supervisor::unseen_end() const {
  std::string text = "; what the program saved is not known to Holdfast";
  if (!state_.attempt_live() || !signalled()) return text;
  const auto killed = std::count_if(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return !r.ended; });
  const double after = now_ + unix_offset_ - state_.drain->at;
  return killed == 0 ? fmt::format("{}: its ranks ended within {:.1f} s of SIGTERM", text, after)
                     : fmt::format("{}: {} of {} ranks had not ended {:.1f} s after SIGTERM, and were killed",
                                   text, killed, world(), after);
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

std::string Supervisor::why_ranks_cannot(const char* what) const {
  return fmt::format(
      "the program has not spoken to its agents and would not hear that it is to {}; stop sends it SIGTERM "
      "and gives it {} s",
      what, drain_s_);
}

}  // namespace holdfast::launcher

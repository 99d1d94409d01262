// A case is judged by what its run has recorded. differences_of() begins with the errors of the drill itself
// and the faults that were never due. missing_effect() then looks for the expected record and effect of each
// injected fault. If the run has an outcome, its time account and exit code follow; and if it is to end with
// 0, the final step and the digest of the baseline, the steps that it has lost, and its metrics.
//
// An event counts for an injection from 0.05 s before it on, since both may be of the same moment. Until
// when, horizon() and *_until() say: usually until the next injection, but for 15 s at least. One end of an
// attempt may be the effect of two injections; of two takeovers or two drains in a row each needs an event of
// its own.
//
// recovery_times() divides the time from a fault to the next new step at the same events. Where one is
// missing, its part stays empty.
#include "launcher/drill/case_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

constexpr double clock_grain_s = 0.05;  ///< an event and an injection of the same moment
/// At most so long after an injection comes the event that shows it. A hang takes longest, also when the
/// leader is lost too.
constexpr double effect_limit_s = 15;
constexpr double never = std::numeric_limits<double>::infinity();

double time_of(const LogEntry& e) { return e.envelope.unix; }

template <class... Kinds>
bool is(const LogEntry& e) {
  return (std::holds_alternative<Kinds>(e.event) || ...);
}

/// The first event that `fits`, in [from, until).
template <class Fits>
const LogEntry* first(const RunView& view, double from, double until, Fits fits) {
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) < until && fits(e)) return &e;
  return nullptr;
}
template <class Kind>
const LogEntry* first(const RunView& view, double from, double until) {
  return first(view, from, until, is<Kind>);
}
/// The last one before `until`.
template <class Kind>
const LogEntry* last(const RunView& view, double from, double until) {
  const LogEntry* found = nullptr;
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) <= until && is<Kind>(e)) found = &e;
  return found;
}

bool ends_badly(const LogEntry& e) {
  const auto* ended = std::get_if<events::AttemptEnded>(&e.event);
  return ended && ended->cause != "finished";
}

bool is_trouble(const LogEntry& e) {
  return ends_badly(e) ||
         is<events::RankExited, events::NodeLost, events::NodeSuspected, events::NodeEvicted,
            events::SilentCorruption, events::Drain, events::LeaderElected, events::Straggler>(e);
}

/// Until when events are effects of this injection: until the next one, unless that came in the same
/// recovery.
double horizon(const CaseRecord& record, std::size_t i) {
  const double at = record.injected[i].at;
  for (std::size_t j = i + 1; j < record.injected.size(); ++j)
    if (first<events::FirstStep>(record.last, at, record.injected[j].at)) return record.injected[j].at;
  return never;
}

/// Until when an event may be an effect of this injection: longer than the next one only within
/// effect_limit_s.
double own_until(const CaseRecord& record, std::size_t i) {
  if (i + 1 >= record.injected.size()) return never;
  return std::max(record.injected[i + 1].at, record.injected[i].at + effect_limit_s);
}
/// The same where the next injection has the same expected effect: each of two takeovers has its own event.
double sole_until(const CaseRecord& record, std::size_t i) {
  const auto& injected = record.injected;
  const bool same =
      i + 1 < injected.size() && injected[i + 1].what.fault->effect == injected[i].what.fault->effect;
  return same ? injected[i + 1].at : own_until(record, i);
}

bool attempt_lives_at(const RunView& view, double at) {
  bool lives = false;
  for (const auto& e : view.events) {
    if (time_of(e) >= at) break;
    if (is<events::AttemptPlanned>(e)) lives = true;
    if (is<events::AttemptEnded>(e)) lives = false;
  }
  return lives;
}

/// The end of one attempt may be the effect of two injections of the same moment. If no attempt lived, the
/// next one must end.
double attempt_until(const CaseRecord& record, std::size_t i) {
  const double until = horizon(record, i);
  if (!attempt_lives_at(record.last, record.injected[i].at)) return until;
  return std::min(until, own_until(record, i));
}

/// Newest durable checkpoint before the moment; -1: none.
std::int64_t durable_at(const RunView& view, double at) {
  std::int64_t newest = -1;
  for (const auto& e : view.events)
    if (const auto* durable = std::get_if<events::CheckpointDurable>(&e.event); durable && time_of(e) < at)
      newest = std::max(newest, durable->step);
  return newest;
}

/// State that was saved, and not a fresh start.
bool restores_state(const LogEntry& e) {
  const auto* restored = std::get_if<events::Restored>(&e.event);
  return restored && restored->step > 0;
}

/// Does the event log show the expected record?
bool has_expected_record(const CaseRecord& record, std::size_t i) {
  const Injected& s = record.injected[i];
  const RunView& view = record.last;
  const double from = s.at - clock_grain_s;
  const std::string node = s.what.nodes.empty() ? "" : s.what.nodes.front();
  const auto lost = [&](const LogEntry& e) {
    const auto* what = std::get_if<events::NodeLost>(&e.event);
    return what && what->node == node;
  };
  const auto came_back = [&]() -> const events::Restored* {
    const LogEntry* back = first(view, from, never, restores_state);
    return back ? &std::get<events::Restored>(back->event) : nullptr;
  };
  switch (s.what.fault->record) {
    case ExpectedRecord::none:
      return true;
    case ExpectedRecord::dropped:
      return first<events::CheckpointDropped>(view, from, never);
    case ExpectedRecord::kept: {
      const LogEntry* asked = first<events::Drain>(view, from, never);
      return asked && first(view, time_of(*asked), never, [&](const LogEntry& e) {
               const auto* durable = std::get_if<events::CheckpointDurable>(&e.event);
               return durable && durable->step >= std::get<events::Drain>(asked->event).step;
             });
    }
    case ExpectedRecord::passed_over: {
      const std::int64_t newest = durable_at(view, s.at);
      const auto* back = came_back();
      return back && back->step < newest;
    }
    case ExpectedRecord::fetched: {
      const auto* back = came_back();
      return back && back->level != "local";
    }
    case ExpectedRecord::lost:
      return first(view, from, never, lost);
    case ExpectedRecord::any_reaction:
      return first(view, from, own_until(record, i), [&](const LogEntry& e) {
        return lost(e) || ends_badly(e) || is<events::LeaderElected>(e);
      });
    case ExpectedRecord::accused:
      return first(view, from, never, [&](const LogEntry& e) {
        const auto* found = std::get_if<events::SilentCorruption>(&e.event);
        return found && std::find(found->nodes.begin(), found->nodes.end(), node) != found->nodes.end();
      });
    case ExpectedRecord::waited:
      return first<events::OldRanksRemain>(view, from, never) && !first<events::NodeLost>(view, from, never);
  }
  return true;
}

std::string missing_effect(const CaseRecord& record, std::size_t i) {
  const Injected& s = record.injected[i];
  const RunView& view = record.last;
  const double from = s.at - clock_grain_s;
  const char* name = s.what.fault->name;
  if (!has_expected_record(record, i)) return fmt::format("{} is not on record: it had no effect", name);
  switch (s.what.fault->effect) {
    case ExpectedEffect::none:
      return "";
    case ExpectedEffect::takeover:
      return first<events::LeaderElected>(view, from, sole_until(record, i))
                 ? ""
                 : fmt::format("after {} nobody took over", name);
    case ExpectedEffect::drain:
      return first<events::Drain>(view, from, sole_until(record, i))
                 ? ""
                 : fmt::format("after {} no drain was recorded", name);
    case ExpectedEffect::hold:
      return first<events::Paused>(view, from, horizon(record, i))
                 ? ""
                 : fmt::format("after {} the run did not hold", name);
    case ExpectedEffect::attempt:
      break;
  }
  const LogEntry* ended = first(view, from, attempt_until(record, i), ends_badly);
  if (!ended) return fmt::format("{} had no effect: no attempt ended after it", name);
  // With no step done there is nothing to restore.
  if (s.step == 0 || record.plan.exit_code != 0) return "";
  return first(view, time_of(*ended), never, restores_state)
             ? ""
             : fmt::format("after {} no saved state was restored", name);
}

/// The parts of the time account and the time from the first event to the last must be the same, but for the
/// clocks of leaders.
std::string wrong_account(const RunView& view) {
  constexpr double share = 0.01, clocks_s = 1;
  if (view.events.empty()) return "";
  double spent = 0;
  for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use)
    spent += view.state.time.of(static_cast<TimeUse>(use));
  double took = 0;
  for (const auto& e : view.events) took = std::max(took, time_of(e) - time_of(view.events.front()));
  if (std::abs(spent - took) <= share * took + clocks_s) return "";
  return fmt::format("its time account adds up to {:.1f} s, and it took {:.1f} s", spent, took);
}

}  // namespace

bool every_effect_is_seen(const CaseRecord& record) {
  for (std::size_t i = 0; i < record.injected.size(); ++i)
    if (!missing_effect(record, i).empty()) return false;
  return true;
}

std::vector<std::string> differences_of(const CaseRecord& record, const Baseline& baseline) {
  std::vector<std::string> differences = record.errors;
  for (const auto& name : record.missed) differences.push_back(name + " was never due");
  const auto& outcome = record.last.state.outcome;
  if (record.timed_out)
    differences.push_back(fmt::format("it was not over after {:.0f} s", record.plan.limit_s));
  for (std::size_t i = 0; i < record.injected.size(); ++i)
    if (auto why = missing_effect(record, i); !why.empty()) differences.push_back(std::move(why));
  if (!outcome) {
    if (!record.timed_out) differences.push_back("the run has no outcome");
    return differences;
  }
  if (auto why = wrong_account(record.last); !why.empty()) differences.push_back(std::move(why));
  if (outcome->exit_code != record.plan.exit_code)
    differences.push_back(fmt::format("it ended with exit code {} ({}{}{}), not {}", outcome->exit_code,
                                      outcome->status, outcome->why.empty() ? "" : ": ", outcome->why,
                                      record.plan.exit_code));
  if (record.plan.exit_code != 0) return differences;
  const auto& final = record.last.state.final_state;
  if (!final) {
    differences.push_back("the run has no final state");
    return differences;
  }
  if (final->step != baseline.step)
    differences.push_back(fmt::format("it ended at step {}, not {}", final->step, baseline.step));
  if (final->state_digest != baseline.digest)
    differences.push_back(fmt::format("other bits: {}, not {}", final->state_digest, baseline.digest));
  for (const auto& a : record.last.state.attempts)
    if (a.lost_steps > record.plan.max_lost)
      differences.push_back(fmt::format("attempt {} lost {} steps, more than {}", a.number, a.lost_steps,
                                        record.plan.max_lost));
  if (!record.every_step_once) differences.push_back("metrics.jsonl does not have every step once");
  return differences;
}

RecoveryTimes recovery_times(const Injected& injected, double next_at, const RunView& view) {
  RecoveryTimes times;
  const double at = injected.at;
  const auto after = [](const LogEntry* e, double before) {
    return e ? std::optional(time_of(*e) - before) : std::nullopt;
  };
  const LogEntry* noticed = first(view, at - clock_grain_s, next_at, is_trouble);
  times.detect = after(noticed, at);
  if (injected.what.fault->effect == ExpectedEffect::takeover)
    times.total = after(first<events::LeaderElected>(view, at, next_at), at);
  const LogEntry* ended = first(view, at - clock_grain_s, next_at, ends_badly);
  if (!ended) return times;
  const LogEntry* step = first<events::FirstStep>(view, time_of(*ended), never);
  if (!step || !noticed) return times;
  // Of several attempts in one recovery the last one succeeded.
  const double until = time_of(*step);
  const LogEntry* planned = last<events::AttemptPlanned>(view, time_of(*ended), until);
  const LogEntry* up = last<events::PlacementVerified>(view, time_of(*ended), until);
  const LogEntry* back = last<events::Restored>(view, time_of(*ended), until);
  if (planned) times.decide = after(planned, time_of(*noticed));
  if (planned && up) times.launch = after(up, time_of(*planned));
  if (up && back) times.restore = after(back, time_of(*up));
  if (back) times.step = after(step, time_of(*back));
  if (injected.what.fault->effect != ExpectedEffect::takeover) times.total = after(step, at);
  return times;
}

}  // namespace holdfast::launcher

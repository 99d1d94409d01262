#include "launcher/drill/case_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr double clock_grain_s = 0.05;  ///< an event and an injection of the same moment
/// At most so long after an injection comes the event that shows it. A hang takes longest, also when the
/// leader is lost too.
constexpr double effect_limit_s = 15;
constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::array trouble_events = {"rank_exited",       "node_lost", "node_suspected", "node_evicted",
                                       "silent_corruption", "drain",     "leader_elected", "straggler"};

std::string name_of(const json& e) { return e.value("event", ""); }

/// The first event that `fits`, in [from, until).
template <class Fits>
const json* first(const RunView& view, double from, double until, Fits fits) {
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) < until && fits(e)) return &e;
  return nullptr;
}
const json* first_called(const RunView& view, double from, double until, std::string_view name) {
  return first(view, from, until, [&](const json& e) { return name_of(e) == name; });
}
/// The last one before `until`.
const json* last(const RunView& view, double from, double until, std::string_view name) {
  const json* found = nullptr;
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) <= until && name_of(e) == name) found = &e;
  return found;
}

bool ends_badly(const json& e) { return name_of(e) == "attempt_ended" && e.value("cause", "") != "finished"; }

bool is_trouble(const json& e) {
  if (name_of(e) == "attempt_ended") return ends_badly(e);
  return std::find(trouble_events.begin(), trouble_events.end(), name_of(e)) != trouble_events.end();
}

/// Until when events are effects of this injection: until the next one, unless that came in the same
/// recovery.
double horizon(const CaseRecord& record, std::size_t i) {
  const double at = record.injected[i].at;
  for (std::size_t j = i + 1; j < record.injected.size(); ++j)
    if (first_called(record.last, at, record.injected[j].at, "first_step")) return record.injected[j].at;
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
    if (name_of(e) == "attempt_planned") lives = true;
    if (name_of(e) == "attempt_ended") lives = false;
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

bool contains(const json& list, const std::string& node) {
  return list.is_array() && std::find(list.begin(), list.end(), json(node)) != list.end();
}

/// Newest durable checkpoint before the moment; -1: none.
std::int64_t durable_at(const RunView& view, double at) {
  std::int64_t newest = -1;
  for (const auto& e : view.events)
    if (time_of(e) < at && name_of(e) == "checkpoint_durable")
      newest = std::max(newest, e.value("step", std::int64_t{-1}));
  return newest;
}

/// Does the event log show the expected record?
bool has_expected_record(const CaseRecord& record, std::size_t i) {
  const Injected& s = record.injected[i];
  const RunView& view = record.last;
  const double from = s.at - clock_grain_s;
  const std::string node = s.what.nodes.empty() ? "" : s.what.nodes.front();
  const auto lost = [&](const json& e) { return name_of(e) == "node_lost" && e.value("node", "") == node; };
  const auto came_back = [&](const json& e) {
    return name_of(e) == "restored" && e.value("step", std::int64_t{0}) > 0;
  };
  switch (s.what.fault->record) {
    case ExpectedRecord::none:
      return true;
    case ExpectedRecord::dropped:
      return first_called(view, from, never, "checkpoint_dropped");
    case ExpectedRecord::kept: {
      const json* asked = first_called(view, from, never, "drain");
      return asked && first(view, time_of(*asked), never, [&](const json& e) {
               return name_of(e) == "checkpoint_durable" &&
                      e.value("step", std::int64_t{-1}) >= asked->value("step", std::int64_t{0});
             });
    }
    case ExpectedRecord::passed_over: {
      const std::int64_t newest = durable_at(view, s.at);
      const json* back = first(view, from, never, came_back);
      return back && back->value("step", std::int64_t{0}) < newest;
    }
    case ExpectedRecord::fetched: {
      const json* back = first(view, from, never, came_back);
      return back && back->value("level", "") != "local";
    }
    case ExpectedRecord::lost:
      return first(view, from, never, lost);
    case ExpectedRecord::any_reaction:
      return first(view, from, own_until(record, i),
                   [&](const json& e) { return lost(e) || ends_badly(e) || name_of(e) == "leader_elected"; });
    case ExpectedRecord::accused:
      return first(view, from, never, [&](const json& e) {
        return name_of(e) == "silent_corruption" && contains(e.value("nodes", json::array()), node);
      });
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
      return first_called(view, from, sole_until(record, i), "leader_elected")
                 ? ""
                 : fmt::format("after {} nobody took over", name);
    case ExpectedEffect::drain:
      return first_called(view, from, sole_until(record, i), "drain")
                 ? ""
                 : fmt::format("after {} no drain was recorded", name);
    case ExpectedEffect::hold:
      return first_called(view, from, horizon(record, i), "paused")
                 ? ""
                 : fmt::format("after {} the run did not hold", name);
    case ExpectedEffect::attempt:
      break;
  }
  const json* ended = first(view, from, attempt_until(record, i), ends_badly);
  if (!ended) return fmt::format("{} had no effect: no attempt ended after it", name);
  // With no step done there is nothing to restore.
  if (s.step == 0 || record.plan.exit_code != 0) return "";
  const json* back = first(view, time_of(*ended), never,
                           [](const json& e) { return name_of(e) == "restored" && e.value("step", 0) > 0; });
  return back ? "" : fmt::format("after {} no saved state was restored", name);
}

}  // namespace

bool ended_for_good(const RunView& view) {
  return view.state.outcome && view.state.outcome->exit_code != static_cast<int>(Exit::transient);
}

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
  const auto after = [](const json* e, double before) {
    return e ? std::optional(time_of(*e) - before) : std::nullopt;
  };
  const json* noticed = first(view, at - clock_grain_s, next_at, is_trouble);
  times.detect = after(noticed, at);
  if (injected.what.fault->effect == ExpectedEffect::takeover)
    times.total = after(first_called(view, at, next_at, "leader_elected"), at);
  const json* ended = first(view, at - clock_grain_s, next_at, ends_badly);
  if (!ended) return times;
  const json* step = first_called(view, time_of(*ended), never, "first_step");
  if (!step || !noticed) return times;
  // Of several attempts in one recovery the last one succeeded.
  const double until = time_of(*step);
  const json* planned = last(view, time_of(*ended), until, "attempt_planned");
  const json* up = last(view, time_of(*ended), until, "placement_verified");
  const json* back = last(view, time_of(*ended), until, "restored");
  if (planned) times.decide = after(planned, time_of(*noticed));
  if (planned && up) times.launch = after(up, time_of(*planned));
  if (up && back) times.restore = after(back, time_of(*up));
  if (back) times.step = after(step, time_of(*back));
  if (injected.what.fault->effect != ExpectedEffect::takeover) times.total = after(step, at);
  return times;
}

}  // namespace holdfast::launcher

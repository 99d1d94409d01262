#include "launcher/drill/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr double clock_grain_s = 0.05;  ///< an event and a blow of the same moment
/// From a blow to the event that shows it, at most: a hang takes the longest, also where the leader goes too.
constexpr double felt_s = 15;
constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::array words_of_trouble = {"rank_exited",       "node_lost", "node_suspected", "node_evicted",
                                         "silent_corruption", "drain",     "leader_elected", "straggler"};

std::string name_of(const json& e) { return e.value("event", ""); }

/// The first event that `fits`, in [from, until).
template <class Fits>
const json* first(const View& view, double from, double until, Fits fits) {
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) < until && fits(e)) return &e;
  return nullptr;
}
const json* first_called(const View& view, double from, double until, std::string_view name) {
  return first(view, from, until, [&](const json& e) { return name_of(e) == name; });
}
/// The last one before `until`.
const json* last(const View& view, double from, double until, std::string_view name) {
  const json* found = nullptr;
  for (const auto& e : view.events)
    if (time_of(e) >= from && time_of(e) <= until && name_of(e) == name) found = &e;
  return found;
}

bool ends_badly(const json& e) { return name_of(e) == "attempt_ended" && e.value("cause", "") != "finished"; }

bool speaks_of_trouble(const json& e) {
  if (name_of(e) == "attempt_ended") return ends_badly(e);
  return std::find(words_of_trouble.begin(), words_of_trouble.end(), name_of(e)) != words_of_trouble.end();
}

/// Until when what happens is still of this blow: the next one, unless that fell into the same recovery.
double horizon(const Outcome& outcome, std::size_t i) {
  const double at = outcome.struck[i].at;
  for (std::size_t j = i + 1; j < outcome.struck.size(); ++j)
    if (first_called(outcome.last, at, outcome.struck[j].at, "first_step")) return outcome.struck[j].at;
  return never;
}

/// Until when an event may be this blow's: after the next one only while this one may still have to be felt.
double own_until(const Outcome& outcome, std::size_t i) {
  if (i + 1 >= outcome.struck.size()) return never;
  return std::max(outcome.struck[i + 1].at, outcome.struck[i].at + felt_s);
}
/// And where the next one must leave the same event: of two takeovers each has its own.
double sole_until(const Outcome& outcome, std::size_t i) {
  const auto& struck = outcome.struck;
  const bool same = i + 1 < struck.size() && struck[i + 1].what.fault->mark == struck[i].what.fault->mark;
  return same ? struck[i + 1].at : own_until(outcome, i);
}

bool attempt_lives_at(const View& view, double at) {
  bool lives = false;
  for (const auto& e : view.events) {
    if (time_of(e) >= at) break;
    if (name_of(e) == "attempt_planned") lives = true;
    if (name_of(e) == "attempt_ended") lives = false;
  }
  return lives;
}

/// The end of an attempt may serve two blows of the same moment. Where none lived, the next one must end.
double attempt_until(const Outcome& outcome, std::size_t i) {
  const double until = horizon(outcome, i);
  if (!attempt_lives_at(outcome.last, outcome.struck[i].at)) return until;
  return std::min(until, own_until(outcome, i));
}

bool contains(const json& list, const std::string& node) {
  return list.is_array() && std::find(list.begin(), list.end(), json(node)) != list.end();
}

/// Newest durable checkpoint before the moment; -1: none.
std::int64_t durable_at(const View& view, double at) {
  std::int64_t newest = -1;
  for (const auto& e : view.events)
    if (time_of(e) < at && name_of(e) == "checkpoint_durable")
      newest = std::max(newest, e.value("step", std::int64_t{-1}));
  return newest;
}

/// Is there what a blow that has worked leaves?
bool has_trace(const Outcome& outcome, std::size_t i) {
  const Struck& s = outcome.struck[i];
  const View& view = outcome.last;
  const double from = s.at - clock_grain_s;
  const std::string node = s.what.nodes.empty() ? "" : s.what.nodes.front();
  const auto lost = [&](const json& e) { return name_of(e) == "node_lost" && e.value("node", "") == node; };
  const auto came_back = [&](const json& e) {
    return name_of(e) == "restored" && e.value("step", std::int64_t{0}) > 0;
  };
  switch (s.what.fault->leaves) {
    case Trace::none:
      return true;
    case Trace::dropped:
      return first_called(view, from, never, "checkpoint_dropped");
    case Trace::kept: {
      const json* asked = first_called(view, from, never, "drain");
      return asked && first(view, time_of(*asked), never, [&](const json& e) {
               return name_of(e) == "checkpoint_durable" &&
                      e.value("step", std::int64_t{-1}) >= asked->value("step", std::int64_t{0});
             });
    }
    case Trace::passed_over: {
      const std::int64_t newest = durable_at(view, s.at);
      const json* back = first(view, from, never, came_back);
      return back && back->value("step", std::int64_t{0}) < newest;
    }
    case Trace::fetched: {
      const json* back = first(view, from, never, came_back);
      return back && back->value("level", "") != "local";
    }
    case Trace::lost:
      return first(view, from, never, lost);
    case Trace::felt:
      return first(view, from, own_until(outcome, i),
                   [&](const json& e) { return lost(e) || ends_badly(e) || name_of(e) == "leader_elected"; });
    case Trace::accused:
      return first(view, from, never, [&](const json& e) {
        return name_of(e) == "silent_corruption" && contains(e.value("nodes", json::array()), node);
      });
  }
  return true;
}

std::string felt(const Outcome& outcome, std::size_t i) {
  const Struck& s = outcome.struck[i];
  const View& view = outcome.last;
  const double from = s.at - clock_grain_s;
  const char* name = s.what.fault->name;
  if (!has_trace(outcome, i)) return fmt::format("{} has left no trace: it did nothing", name);
  switch (s.what.fault->mark) {
    case Mark::none:
      return "";
    case Mark::takeover:
      return first_called(view, from, sole_until(outcome, i), "leader_elected")
                 ? ""
                 : fmt::format("after {} nobody took over", name);
    case Mark::drain:
      return first_called(view, from, sole_until(outcome, i), "drain")
                 ? ""
                 : fmt::format("after {} no drain was recorded", name);
    case Mark::hold:
      return first_called(view, from, horizon(outcome, i), "paused")
                 ? ""
                 : fmt::format("after {} the run did not hold", name);
    case Mark::attempt:
      break;
  }
  const json* ended = first(view, from, attempt_until(outcome, i), ends_badly);
  if (!ended) return fmt::format("{} was not felt: no attempt ended after it", name);
  // With no step done there is nothing to come back from.
  if (s.step == 0 || outcome.plan.exit_code != 0) return "";
  const json* back = first(view, time_of(*ended), never,
                           [](const json& e) { return name_of(e) == "restored" && e.value("step", 0) > 0; });
  return back ? "" : fmt::format("after {} no saved state was restored", name);
}

}  // namespace

bool ended_for_good(const View& view) {
  return view.state.verdict && view.state.verdict->exit_code != static_cast<int>(Exit::transient);
}

bool every_fault_is_felt(const Outcome& outcome) {
  for (std::size_t i = 0; i < outcome.struck.size(); ++i)
    if (!felt(outcome, i).empty()) return false;
  return true;
}

std::vector<std::string> what_is_wrong(const Outcome& o, const Baseline& baseline) {
  std::vector<std::string> wrong = o.troubles;
  for (const auto& name : o.missed) wrong.push_back("the moment of " + name + " never came");
  const auto& verdict = o.last.state.verdict;
  if (o.timed_out) wrong.push_back(fmt::format("it was not over after {:.0f} s", o.plan.limit_s));
  for (std::size_t i = 0; i < o.struck.size(); ++i)
    if (auto why = felt(o, i); !why.empty()) wrong.push_back(std::move(why));
  if (!verdict) {
    if (!o.timed_out) wrong.push_back("the run has no verdict");
    return wrong;
  }
  if (verdict->exit_code != o.plan.exit_code)
    wrong.push_back(fmt::format("it ended with exit code {} ({}{}{}), not {}", verdict->exit_code,
                                verdict->status, verdict->why.empty() ? "" : ": ", verdict->why,
                                o.plan.exit_code));
  if (o.plan.exit_code != 0) return wrong;
  const auto& final = o.last.state.final_state;
  if (!final) {
    wrong.push_back("the run has no final state");
    return wrong;
  }
  if (final->step != baseline.step)
    wrong.push_back(fmt::format("it ended at step {}, not {}", final->step, baseline.step));
  if (final->state_digest != baseline.digest)
    wrong.push_back(fmt::format("other bits: {}, not {}", final->state_digest, baseline.digest));
  for (const auto& a : o.last.state.attempts)
    if (a.lost_steps > o.plan.most_lost)
      wrong.push_back(
          fmt::format("attempt {} lost {} steps, more than {}", a.number, a.lost_steps, o.plan.most_lost));
  if (!o.every_step_once) wrong.push_back("metrics.jsonl does not have every step once");
  return wrong;
}

Split split_of(const Struck& struck, double next_at, const View& view) {
  Split split;
  const double at = struck.at;
  const auto after = [](const json* e, double before) {
    return e ? std::optional(time_of(*e) - before) : std::nullopt;
  };
  const json* noticed = first(view, at - clock_grain_s, next_at, speaks_of_trouble);
  split.detect = after(noticed, at);
  if (struck.what.fault->mark == Mark::takeover)
    split.total = after(first_called(view, at, next_at, "leader_elected"), at);
  const json* ended = first(view, at - clock_grain_s, next_at, ends_badly);
  if (!ended) return split;
  const json* step = first_called(view, time_of(*ended), never, "first_step");
  if (!step || !noticed) return split;
  // Of several attempts in one recovery the last one brought it about.
  const double until = time_of(*step);
  const json* planned = last(view, time_of(*ended), until, "attempt_planned");
  const json* up = last(view, time_of(*ended), until, "placement_verified");
  const json* back = last(view, time_of(*ended), until, "restored");
  if (planned) split.decide = after(planned, time_of(*noticed));
  if (planned && up) split.launch = after(up, time_of(*planned));
  if (up && back) split.restore = after(back, time_of(*up));
  if (back) split.step = after(step, time_of(*back));
  if (struck.what.fault->mark != Mark::takeover) split.total = after(step, at);
  return split;
}

}  // namespace holdfast::launcher

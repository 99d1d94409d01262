#include <map>

#include "launcher/sinks/openmetrics.hpp"

namespace holdfast::launcher::sinks {
namespace {

/// It neither did all steps nor ended because it was told to.
bool failed(const AttemptRecord& attempt) {
  return attempt.ended_at && attempt.cause != "finished" && attempt.cause != "drained" &&
         attempt.cause != "stopped";
}

Family failures_of(const RunState& s) {
  std::map<std::string, int> by_cause;
  for (const auto& attempt : s.attempts)
    if (failed(attempt)) ++by_cause[attempt.cause];
  Family out{"holdfast_failures_total", "Attempts that failed, by cause.", "cause"};
  for (const auto& [cause, count] : by_cause) out.values.push_back({cause, static_cast<double>(count)});
  return out;
}

Family nodes_of(const StatusFacts& f) {
  const RunState& s = f.state;
  const std::size_t trains = s.attempt_live() ? s.attempts.back().placement.size() : 0;
  return {"holdfast_nodes",
          "Nodes of the allocation, by what they do.",
          "state",
          {{"trains", static_cast<double>(trains)},
           {"spare", static_cast<double>(spares(f).size())},
           {"lost", static_cast<double>(s.lost.size())},
           {"suspect", static_cast<double>(s.suspects.size())},
           {"slow", static_cast<double>(s.slow.size())}}};
}

Family time_of(const RunState& s) {
  Family out{"holdfast_time_seconds", "Where the time of the run went, over all of its jobs.", "use"};
  for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use)
    out.values.push_back({name_of(static_cast<TimeUse>(use)), s.time.of(static_cast<TimeUse>(use))});
  return out;
}

}  // namespace

std::vector<Family> families_of(const StatusFacts& f) {
  const RunState& s = f.state;
  const auto one = [](double value) { return std::vector<Family::Value>{{"", value}}; };
  double lost_steps = 0;
  for (const auto& attempt : s.attempts) lost_steps += static_cast<double>(attempt.lost_steps);
  std::vector<Family> out{
      {"holdfast_goodput_ratio",
       "Share of the time in which steps were done that last.",
       {},
       one(s.time.goodput())},
      {"holdfast_lost_steps_total", "Steps that had to be done again.", {}, one(lost_steps)},
      {"holdfast_paused", "1: the run is held on order.", {}, one(s.paused ? 1 : 0)},
      {"holdfast_saves_dropped",
       "Saves that failed or were skipped since the newest durable one.",
       {},
       one(s.dropped)},
      nodes_of(f),
      failures_of(s),
      time_of(s)};
  if (f.steps)
    out.push_back({"holdfast_planned_steps", "Steps of the run.", {}, one(static_cast<double>(*f.steps))});
  if (s.durable_step >= 0 && s.durable_at) {
    out.push_back({"holdfast_durable_step",
                   "Step of the newest durable checkpoint.",
                   {},
                   one(static_cast<double>(s.durable_step))});
    out.push_back({"holdfast_durable_timestamp_seconds",
                   "When the newest durable checkpoint became so, since 1970.",
                   {},
                   one(*s.durable_at)});
  }
  return out;
}

}  // namespace holdfast::launcher::sinks

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

json or_null(const std::optional<double>& seconds) { return seconds ? json(*seconds) : json(nullptr); }

/// Seconds of an attempt that moved the run forward: stepping (not held on order, and not after the culprit's
/// last sign of life), less the share of steps that were done again later.
double productive_seconds(const AttemptRecord& a) {
  if (!a.first_step_at || !a.ended_at) return 0;
  const double stepping = std::max(0.0, *a.ended_at - *a.first_step_at - a.paused_s - a.detected_s);
  const double done = static_cast<double>(a.last_step - (a.restored ? a.restored->step : 0));
  return done <= 0 ? 0 : stepping * std::max(0.0, 1.0 - static_cast<double>(a.lost_steps) / done);
}

}  // namespace

json result_of(const RunState& s) {
  json attempts = json::array();
  double productive = 0;
  for (const auto& a : s.attempts) {
    productive += productive_seconds(a);
    json from = nullptr;
    if (a.restored)
      from = {{"step", a.restored->step},
              {"level", a.restored->level},
              {"digest", a.restored->digest},
              {"note", a.restored->note}};
    attempts.push_back({{"attempt", a.number},
                        {"cause", a.cause},
                        {"node", a.node},
                        {"rank", a.rank},
                        {"evidence", a.evidence},
                        {"advice", a.advice},
                        {"detected_s", a.detected_s},
                        {"decided_s", a.decided_s},
                        {"recovered_s", or_null(a.recovered_s)},
                        {"launched_s", or_null(a.launched_s)},
                        {"restored_s", or_null(a.restored_s)},
                        {"first_step_s", or_null(a.first_step_s)},
                        {"lost_steps", a.lost_steps},
                        {"restored_from", from},
                        {"last_step", a.reports ? json(a.last_step) : json(nullptr)},
                        {"placement", a.placement}});
  }
  const double wall = s.outcome ? s.outcome->at - s.began_at : 0;
  json result = {{"schema_version", 1},
                 {"status", s.outcome ? s.outcome->status : "running"},
                 {"exit_code", s.outcome ? json(s.outcome->exit_code) : json(nullptr)},
                 {"why", s.outcome ? s.outcome->why : ""},
                 {"job", s.job},
                 {"exclude", s.outcome ? s.outcome->exclude : std::vector<std::string>{}},
                 {"attempts", attempts},
                 {"durable_step", s.durable_step},
                 {"wall_s", wall},
                 {"goodput", wall > 0 ? productive / wall : 0.0},
                 {"final_step", nullptr},
                 {"final_loss", nullptr},
                 {"state_digest", nullptr},
                 {"tokens", nullptr}};
  if (s.outcome) result["term"] = s.outcome->term;
  if (s.final_state) {
    result["final_step"] = s.final_state->step, result["tokens"] = s.final_state->tokens;
    result["state_digest"] = s.final_state->state_digest;
    if (std::isfinite(s.final_state->loss)) result["final_loss"] = s.final_state->loss;
  }
  return result;
}

std::optional<int> code_of(const json& result, const std::string& allocation, int term) {
  if (result.value("job", "") != allocation || result.value("term", 0) != term) return std::nullopt;
  return result.value("exit_code", 1);
}

}  // namespace holdfast::launcher

#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/supervise/run_state.hpp"

#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

json or_null(const std::optional<double>& number) { return number ? json(*number) : json(nullptr); }

}  // namespace

json result_of(const RunState& s, const std::optional<BestCheckpoint>& best) {
  json attempts = json::array();
  for (const auto& a : s.attempts) {
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
  json time;
  for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use)
    time[name_of(static_cast<TimeUse>(use))] = s.time.of(static_cast<TimeUse>(use));
  json result = {{"schema_version", 1},
                 {"status", s.outcome ? s.outcome->status : "running"},
                 {"exit_code", s.outcome ? json(s.outcome->exit_code) : json(nullptr)},
                 {"why", s.outcome ? s.outcome->why : ""},
                 {"job", s.job},
                 {"exclude", s.outcome ? s.outcome->exclude : std::vector<std::string>{}},
                 {"attempts", attempts},
                 {"durable_step", s.durable_step},
                 {"wall_s", s.time.total()},
                 {"time_s", std::move(time)},
                 {"goodput", s.time.goodput()},
                 {"goodput_of_nodes", s.time.goodput_of_nodes()},
                 {"final_step", nullptr},
                 {"final_loss", nullptr},
                 {"state_digest", nullptr},
                 {"tokens", nullptr},
                 {"best", nullptr}};
  if (best) result["best"] = {{"step", best->step}, {"held_out_loss", or_null(best->held_out_loss)}};
  if (s.outcome) result["term"] = s.outcome->term;
  if (s.final_state) {
    result["final_step"] = s.final_state->step, result["tokens"] = s.final_state->tokens;
    result["state_digest"] = s.final_state->state_digest;
    if (std::isfinite(s.final_state->loss)) result["final_loss"] = s.final_state->loss;
  }
  return result;
}

std::optional<int> code_of(const json& result, const std::string& allocation, int term) {
  if (typed<std::string>(result, "job") != allocation || typed<int>(result, "term") != term)
    return std::nullopt;
  return typed<int>(result, "exit_code").value_or(1);
}

}  // namespace holdfast::launcher

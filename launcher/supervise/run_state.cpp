#include "launcher/supervise/run_state.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace holdfast::launcher {
namespace {
using nlohmann::json;

AttemptRecord* attempt(RunState& state, const json& e) {
  const int number = e.value("attempt", 0);
  for (auto& a : state.attempts)
    if (a.number == number) return &a;
  return nullptr;
}

void elected(RunState& s, const json& e) {
  if (s.began_at == 0) s.began_at = e.value("unix", 0.0);
  const std::string job = e.value("job", "");
  if (job == s.job) return;
  // A new allocation (a requeue, or the run submitted again): other nodes, and an earlier verdict no longer
  // binds.
  s.job = job;
  if (s.attempt_live()) {
    auto& last =
        s.attempts.back();  // its ranks ended with their allocation; how far they came, nobody has written
    last.ended_at = e.value("unix", 0.0), last.cause = "allocation ended";
    if (last.restored) last.last_step = std::max({last.last_step, last.restored->step, s.durable_step});
  }
  s.job_epoch = e.value("epoch", 0);
  s.lost.clear(), s.suspects.clear(), s.verdict.reset(), s.drain.reset();
  s.same_step_count = 0, s.same_step = -1;
}

void planned(RunState& s, const json& e) {
  AttemptRecord a;
  a.number = e.value("attempt", 0), a.epoch = e.value("epoch", 0);
  a.placement = e.value("placement", std::vector<std::string>{});
  a.planned_at = e.value("unix", 0.0);
  s.attempts.push_back(std::move(a));
  s.verdicts.clear();
}

void restored(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (!a) return;
  a->restored = control::Restored{e.value("step", std::int64_t{0}), e.value("level", ""),
                                  e.value("digest", ""), e.value("note", "")};
  // An attempt that ended before it had any state did no steps; those that are done again now are of the one
  // before it.
  auto* before = a;
  while (before != s.attempts.data() && !(--before)->restored) {
  }
  if (before != a && before->restored)
    before->lost_steps = std::max<std::int64_t>(0, before->last_step - a->restored->step);
}

void first_step(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (!a) return;
  a->first_step_at = e.value("unix", 0.0);
  // Of all that ended since the last step: a second failure in the midst of a recovery makes the first one's
  // longer.
  for (auto* before = a; before != s.attempts.data() && (--before)->ended_at && !before->recovered_s;)
    before->recovered_s = *a->first_step_at - *before->ended_at;
}

void ended(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (!a) return;
  a->ended_at = e.value("unix", 0.0);
  a->cause = e.value("cause", ""), a->node = e.value("node", "");
  a->detected_s = e.value("detected_s", 0.0);
  a->last_step = std::max(a->last_step, e.value("step", std::int64_t{0}));
  if (a->cause == "finished" || !e.value("healthy", false)) {
    s.same_step_count = 0, s.same_step = -1;
  } else if (s.same_step == a->last_step) {
    ++s.same_step_count;
  } else {
    s.same_step = a->last_step, s.same_step_count = 1;
  }
}

void checkpoint(RunState& s, const json& e, bool durable) {
  const auto step = e.value("step", std::int64_t{-1});
  if (!s.attempts.empty() && e.value("attempt", 0) == s.attempts.back().number) s.verdicts[step] = durable;
  if (!durable) return;
  s.durable_step = std::max(s.durable_step, step);
  if (s.drain && !s.drain->what.stop && step >= s.drain->step) s.drain.reset();
}

void drain(RunState& s, const json& e) {
  const bool stop = e.value("stop", false);
  if (s.drain && (s.drain->what.stop || !stop)) return;
  s.drain = RunState::Draining{
      {stop, e.value("reason", "")}, e.value("unix", 0.0), e.value("step", std::int64_t{0})};
}

/// Seconds of an attempt that moved the run forward: stepping, less the share of steps that were done again
/// later.
double productive_seconds(const AttemptRecord& a) {
  if (!a.first_step_at || !a.ended_at) return 0;
  const double stepping = *a.ended_at - *a.first_step_at;
  const double done = static_cast<double>(a.last_step - (a.restored ? a.restored->step : 0));
  return done <= 0 ? 0 : stepping * std::max(0.0, 1.0 - static_cast<double>(a.lost_steps) / done);
}

}  // namespace

void apply_event(RunState& s, const json& e) {
  const std::string what = e.value("event", "");
  if (what == "leader_elected") {
    elected(s, e);
  } else if (what == "attempt_planned") {
    planned(s, e);
  } else if (what == "restored") {
    restored(s, e);
  } else if (what == "first_step") {
    first_step(s, e);
  } else if (what == "attempt_ended") {
    ended(s, e);
  } else if (what == "node_lost") {
    s.lost.insert(e.value("node", ""));
  } else if (what == "node_suspected") {
    s.suspects.insert(e.value("node", ""));
  } else if (what == "node_returned") {
    s.lost.erase(e.value("node", ""));
    s.suspects.insert(e.value("node", ""));
  } else if (what == "checkpoint_durable" || what == "checkpoint_dropped") {
    checkpoint(s, e, what == "checkpoint_durable");
  } else if (what == "drain") {
    drain(s, e);
  } else if (what == "final_state") {
    const json& loss = e.contains("loss") ? e["loss"] : json();
    s.final_state = control::FinalState{e.value("step", std::int64_t{0}), e.value("tokens", std::int64_t{0}),
                                        loss.is_number() ? loss.get<double>() : std::nan(""),
                                        e.value("state_digest", "")};
  } else if (what == "run_finished") {
    s.verdict = RunState::Verdict{e.value("exit_code", 1), e.value("status", ""), e.value("why", ""),
                                  e.value("unix", 0.0)};
  }
}

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
                        {"detected_s", a.detected_s},
                        {"recovered_s", a.recovered_s ? json(*a.recovered_s) : json(nullptr)},
                        {"lost_steps", a.lost_steps},
                        {"restored_from", from},
                        {"last_step", a.last_step},
                        {"placement", a.placement}});
  }
  const double wall = s.verdict ? s.verdict->at - s.began_at : 0;
  json result = {{"schema_version", 1},
                 {"status", s.verdict ? s.verdict->status : "running"},
                 {"exit_code", s.verdict ? json(s.verdict->exit_code) : json(nullptr)},
                 {"why", s.verdict ? s.verdict->why : ""},
                 {"attempts", attempts},
                 {"durable_step", s.durable_step},
                 {"wall_s", wall},
                 {"goodput", wall > 0 ? productive / wall : 0.0},
                 {"final_step", nullptr},
                 {"final_loss", nullptr},
                 {"state_digest", nullptr},
                 {"tokens", nullptr}};
  if (s.final_state) {
    result["final_step"] = s.final_state->step, result["tokens"] = s.final_state->tokens;
    result["state_digest"] = s.final_state->state_digest;
    if (std::isfinite(s.final_state->loss)) result["final_loss"] = s.final_state->loss;
  }
  return result;
}

}  // namespace holdfast::launcher

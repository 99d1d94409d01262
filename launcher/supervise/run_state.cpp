#include "launcher/supervise/run_state.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

constexpr std::size_t durable_kept = 256;  // steps that are remembered; a run keeps a handful of them on disk
// A program that reports no progress has made some when its ranks have run so long.
constexpr double moved_on_s = 600;

AttemptRecord* attempt(RunState& state, const json& e) {
  const int number = e.value("attempt", 0);
  for (auto& a : state.attempts)
    if (a.number == number) return &a;
  return nullptr;
}

/// Did this attempt bring the run forward? `assumed`: it is not known, and the attempt ran long enough for
/// it.
void count_progress(RunState& s, const AttemptRecord& a, std::int64_t durable_before, bool assumed) {
  const bool forward = assumed || a.last_step > s.best_step || s.durable_step > durable_before;
  s.best_step = std::max(s.best_step, a.last_step);
  s.no_progress = forward ? 0 : s.no_progress + 1;
}

void elected(RunState& s, const json& e) {
  if (s.began_at == 0) s.began_at = e.value("unix", 0.0);
  s.leader = e.value("node", "");
  const std::string job = e.value("job", "");
  if (job == s.job) return;
  // A new allocation (a requeue, or the run submitted again): other nodes, and an earlier outcome no longer
  // binds.
  s.job = job;
  if (s.attempt_live()) {
    // Its ranks ended with their allocation; nothing has recorded how far they came.
    auto& last = s.attempts.back();
    last.ended_at = e.value("unix", 0.0);
    last.cause = "allocation ended";
    if (last.restored) last.last_step = std::max({last.last_step, last.restored->step, s.durable_step});
  }
  s.job_term = e.value("term", 0);
  // Who submits a stopped run again has changed something: it is tried again.
  if (s.outcome && s.outcome->exit_code != static_cast<int>(Exit::transient)) s.no_progress = 0;
  s.lost.clear(), s.suspects.clear(), s.evicted.clear(), s.failures.clear(), s.unfit.clear();
  s.setbacks = s.restarts = 0;
  s.pace.clear();  // other nodes, and perhaps other settings
  s.evicting.clear();
  s.evicting_since.reset();
  s.paused = false;
  s.outcome.reset(), s.drain.reset();
  s.same_step_count = 0;
  s.same_step = -1;
}

void planned(RunState& s, const json& e) {
  AttemptRecord a;
  a.number = e.value("attempt", 0);
  a.term = e.value("term", 0);
  a.placement = e.value("placement", std::vector<std::string>{});
  a.planned_at = e.value("unix", 0.0);
  a.durable_before = s.durable_step;
  s.attempts.push_back(std::move(a));
  s.commit_outcomes.clear();
}

void placed(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (a) a->launched_s = e.value("unix", 0.0) - a->planned_at;
}

void restored(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (!a) return;
  a->restored = control::Restored{e.value("step", std::int64_t{0}), e.value("level", ""),
                                  e.value("digest", ""), e.value("note", "")};
  a->restored_s = std::max(0.0, e.value("unix", 0.0) - a->planned_at - a->launched_s.value_or(0));
  // An attempt that ended before it had any state did no steps; the steps that are repeated now are of the
  // attempt before it.
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
  s.setbacks = 0;
  a->first_step_s = std::max(
      0.0, *a->first_step_at - a->planned_at - a->launched_s.value_or(0) - a->restored_s.value_or(0));
  // Of all attempts that ended since the last step: a second failure during a recovery prolongs the first
  // one's.
  for (auto* before = a; before != s.attempts.data() && (--before)->ended_at && !before->recovered_s;)
    before->recovered_s = *a->first_step_at - *before->ended_at;
}

/// "evidence" is a list; older versions wrote one text.
std::vector<std::string> evidence_of(const json& e) {
  const auto it = e.find("evidence");
  if (it == e.end()) return {};
  if (it->is_string()) return {it->get<std::string>()};
  return it->is_array() ? it->get<std::vector<std::string>>() : std::vector<std::string>{};
}

void ended(RunState& s, const json& e) {
  auto* a = attempt(s, e);
  if (!a) return;
  a->ended_at = e.value("unix", 0.0);
  a->cause = e.value("cause", "");
  a->node = e.value("node", "");
  a->rank = e.value("rank", -1);
  a->detected_s = e.value("detected_s", 0.0);
  a->decided_s = e.value("decided_s", 0.0);
  a->evidence = evidence_of(e);
  a->advice = e.value("advice", "");
  a->last_step = std::max(a->last_step, e.value("step", std::int64_t{0}));
  a->reports = e.value("reports", true);
  a->ran_s = e.value("ran_s", 0.0);
  const bool assumed = e.value("progress_assumed", false);
  if (!a->reports && a->ran_s >= moved_on_s) s.restarts = 0;
  if (e.value("restart", false)) ++s.restarts;
  if (a->cause == "finished" || !e.value("healthy", false) || assumed) {
    s.same_step_count = 0;
    s.same_step = -1;
  } else if (s.same_step == a->last_step) {
    ++s.same_step_count;
  } else {
    s.same_step = a->last_step;
    s.same_step_count = 1;
  }
  if (e.value("setback", false))
    ++s.setbacks;
  else if (e.value("counts", true))
    s.setbacks = 0;
  if (e.value("counts", true)) count_progress(s, *a, a->durable_before, assumed);
  if (!a->node.empty() && e.value("blamed", false)) ++s.failures[a->node];
}

void checkpoint(RunState& s, const json& e, bool durable) {
  const auto step = e.value("step", std::int64_t{-1});
  const int number = e.value("attempt", 0);
  if (!s.attempts.empty() && number == s.attempts.back().number) s.commit_outcomes[step] = durable;
  s.dropped = durable ? 0 : s.dropped + 1;
  s.dropped_why = durable ? "" : e.value("note", "");
  // A checkpoint that an attempt wrote after its state may have become wrong is not used, even if it is
  // sound.
  if (!durable || (s.trusted_step >= 0 && number <= s.tainted_attempt && step > s.trusted_step)) return;
  if (step > s.durable_step) s.restarts = 0;
  s.durable_step = std::max(s.durable_step, step);
  s.durable.insert(step);
  if (s.durable.size() > durable_kept) s.durable.erase(s.durable.begin());
  if (s.drain && !s.drain->what.stop && step >= s.drain->step) s.drain.reset();
  if (s.trusted_step < 0) return;
  s.trusted_step = std::max(s.trusted_step, step);
  if (s.trusted_step >= s.tainted_step)
    s.trusted_step = s.tainted_step = -1;  // newer than all checkpoints that are in doubt
}

void removed(RunState& s, const json& e) {
  for (const std::int64_t step : e.value("steps", std::vector<std::int64_t>{})) s.durable.erase(step);
}

void drain(RunState& s, const json& e) {
  const bool stop = e.value("stop", false), for_good = e.value("for_good", false);
  if (s.drain && s.drain->what.stop) {
    s.drain->for_good = s.drain->for_good || for_good;
    return;
  }
  if (s.drain && !stop) return;
  s.drain = RunState::Draining{
      {stop, e.value("reason", "")}, e.value("unix", 0.0), e.value("step", std::int64_t{0}), for_good};
}

void corrupted(RunState& s, const json& e) {
  s.trusted_step = e.value("trusted_step", std::int64_t{0});
  s.tainted_step = std::max(s.tainted_step, e.value("step", std::int64_t{0}));
  s.tainted_attempt = e.value("attempt", 0);
  s.durable.erase(s.durable.upper_bound(s.trusted_step), s.durable.end());
  s.durable_step = s.durable.empty() ? -1 : *s.durable.rbegin();
}

void learned(RunState& s, const json& e) {
  const auto phases = e.find("phases");
  if (phases == e.end() || !phases->is_object()) return;
  for (const auto& [phase, known] : phases->items())
    if (known.is_object()) s.pace[phase] = {known.value("longest_s", 0.0), known.value("first_s", 0.0)};
}

void evicted(RunState& s, const std::string& node) {
  s.lost.insert(node), s.evicted.insert(node);
  s.evicting.erase(node);
  if (s.evicting.empty()) s.evicting_since.reset();
}

}  // namespace

std::optional<control::Drain> RunState::asked_of_ranks() const {
  if (drain && drain->what.stop) return drain->what;
  if (!evicting.empty()) {
    std::string names;
    for (const auto& [node, why] : evicting) names += (names.empty() ? "" : ", ") + node;
    return control::Drain{true, "evict " + names};
  }
  if (!drain) return std::nullopt;
  // Ranks ignore a drain that they know already, since an agent that was restarted repeats it: the second
  // save of an attempt must have another text.
  return control::Drain{false, drain->what.reason + ", after step " + std::to_string(drain->step)};
}

bool RunState::hold_ranks() const {
  const auto asked = asked_of_ranks();
  return paused && !(asked && asked->stop);
}

bool RunState::trains_on(const std::string& node) const {
  if (!attempt_live() || lost.contains(node)) return false;
  const auto& placement = attempts.back().placement;
  return std::find(placement.begin(), placement.end(), node) != placement.end();
}

std::vector<std::int64_t> newest_durable(const RunState& state) {
  std::vector<std::int64_t> steps(state.durable.rbegin(), state.durable.rend());
  steps.resize(std::min(steps.size(), control::max_durable_steps));
  return steps;
}

void apply_event(RunState& s, const json& e) {
  const std::string what = e.value("event", ""), node = e.value("node", "");
  if (what == "leader_elected") {
    elected(s, e);
  } else if (what == "attempt_planned") {
    planned(s, e);
  } else if (what == "placement_verified") {
    placed(s, e);
  } else if (what == "restored") {
    restored(s, e);
  } else if (what == "first_step") {
    first_step(s, e);
  } else if (what == "attempt_ended") {
    ended(s, e);
  } else if (what == "node_lost") {
    s.lost.insert(node);
    s.evicting.erase(node);
    if (s.evicting.empty()) s.evicting_since.reset();
  } else if (what == "node_evicted") {
    evicted(s, node);
  } else if (what == "eviction_ordered") {
    s.evicting[node] = e.value("reason", "");
    if (!s.evicting_since) s.evicting_since = e.value("unix", 0.0);
  } else if (what == "node_suspected") {
    s.suspects.insert(node);
  } else if (what == "node_returned") {
    s.lost.erase(node);
    s.suspects.insert(node);
  } else if (what == "checkpoint_durable" || what == "checkpoint_dropped") {
    checkpoint(s, e, what == "checkpoint_durable");
  } else if (what == "checkpoints_removed") {
    removed(s, e);
  } else if (what == "drain") {
    drain(s, e);
  } else if (what == "spare_health") {
    const std::string fitness = e.value("fitness", "");
    if (fitness == "warning" || fitness == "critical")
      s.unfit[node] = fitness + ": " + e.value("evidence", "");
    else
      s.unfit.erase(node);
  } else if (what == "pace") {
    learned(s, e);
  } else if (what == "paused" || what == "resumed") {
    s.paused = what == "paused";
  } else if (what == "silent_corruption") {
    corrupted(s, e);
  } else if (what == "final_state") {
    const json& loss = e.contains("loss") ? e["loss"] : json();
    s.final_state = control::FinalState{e.value("step", std::int64_t{0}), e.value("tokens", std::int64_t{0}),
                                        loss.is_number() ? loss.get<double>() : std::nan(""),
                                        e.value("state_digest", "")};
  } else if (what == "run_finished") {
    s.outcome = RunOutcome{e.value("exit_code", 1),
                           e.value("status", ""),
                           e.value("why", ""),
                           e.value("unix", 0.0),
                           e.value("exclude", std::vector<std::string>{}),
                           e.value("term", 0)};
  }
}

}  // namespace holdfast::launcher

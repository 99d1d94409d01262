// apply() changes the state by one event: Fold takes it, then faults_in() marks nodes, and the time account
// and the time of the newest event follow. There is no clock here: times are those of the envelopes, so that
// each replay gives the same state.
// - LeaderElected of another job begins an allocation: what was known of its nodes, orders and an outcome are
//   forgotten, and an attempt that lived is ended. What counts the program's failures stays, but for false
//   starts, unless the run was over for good.
// - AttemptEnded counts for the budgets: whether the run has moved on, who ended it, and whether that was a
//   false start. A new best step, or a checkpoint that has become durable, sets most of them to 0.
// - CheckpointDurable, CheckpointDamaged and SilentCorruption keep durable_step: the newest checkpoint from
//   which an attempt may begin. One written after the state may have become wrong never counts.
//
// An event about an attempt that is not on record changes no attempt.
#include "launcher/supervise/run_state.hpp"

#include <algorithm>

#include "launcher/diagnose/signs.hpp"
#include "launcher/supervise/spare_checks.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {
constexpr std::size_t durable_kept = 256;  // steps that are remembered; a run keeps a handful of them on disk
// A program that reports no progress has made some when its ranks have run so long.
constexpr double moved_on_s = 600;

/// The infrastructure has done its part: the run has moved on.
void end_setbacks(RunState& s) {
  s.setbacks = 0;
  s.setback_s = 0;
}

/// The program has ended an attempt. `forward`: the attempt has brought the run forward.
void count_program(RunState& s, const AttemptRecord& a, const events::AttemptEnded& e, bool forward) {
  ++s.restarts;
  if (!forward) ++s.no_progress;
  const std::string error = a.cause + " " + std::to_string(e.status);
  const bool again = s.same_step == a.last_step && s.same_error == error;
  s.same_step_count = e.progress_assumed ? 0 : again ? s.same_step_count + 1 : 1;
  s.same_step = e.progress_assumed ? -1 : a.last_step;
  s.same_error = error;
  // The state itself may be what the program ends by: the next attempt starts from another one.
  if (s.same_step_count > 1 && a.begins_from.step >= 0 && a.last_step <= a.begins_from.step)
    s.refused.insert(a.begins_from);
}

/// The program that has worked ended before it could do anything: it had no state yet; of one that does not
/// report, it had not run for supervise.assumed_progress_s. A hang or a comparison has no status.
bool is_false_start(const AttemptRecord& a, const events::AttemptEnded& e) {
  return e.kind == "program" && e.status != 0 && (a.reports ? !a.restored : !e.progress_assumed);
}

NodeMark marked(NodeMark::What what, const RunState& s, double at) {
  return {what, at, s.job_term, s.attempts.empty() ? 0 : s.attempts.back().number};
}

/// One function for each event, and none for all others: an event without one does not compile.
class Fold {
 public:
  Fold(RunState& state, const Envelope& at) : s(state), at_(at) {}

  void operator()(const events::LeaderElected& e) const;
  void operator()(const events::SettingsChanged& e) const;
  void operator()(const events::SharedReturned&) const {}
  void operator()(const events::AttemptPlanned& e) const;
  void operator()(const events::StateChosen& e) const {
    if (auto* a = attempt(e.attempt)) a->begins_from = {e.step, e.of_attempt};
  }
  void operator()(const events::OldRanksRemain& e) const {
    if (auto* a = attempt(e.attempt)) a->waits_for = e.evidence;
  }
  void operator()(const events::AttemptStarted& e) const {
    if (auto* a = attempt(e.attempt)) a->waits_for.clear();
  }
  void operator()(const events::PlacementVerified& e) const {
    if (auto* a = attempt(e.attempt)) a->launched_s = at_.unix - a->planned_at;
  }
  void operator()(const events::AttemptAdopted&) const {}
  void operator()(const events::Restored& e) const;
  void operator()(const events::FirstStep& e) const;
  void operator()(const events::RankExited&) const {}
  void operator()(const events::AttemptEnded& e) const;
  void operator()(const events::FinalState& e) const {
    s.final_state = control::FinalState{e.step, e.tokens, e.loss, e.state_digest};
  }
  void operator()(const events::NodeLost& e) const {
    s.lost.insert(e.node);
    left(e.node);
  }
  void operator()(const events::NodeReturned& e) const {
    s.lost.erase(e.node);
    s.suspects.insert(e.node);
  }
  void operator()(const events::NodeSuspected& e) const { s.suspects.insert(e.node); }
  void operator()(const events::EvictionOrdered& e) const {
    s.evicting[e.node] = e.reason;
    if (!e.sign.empty()) s.evictions[e.sign].insert(e.node);
    s.heard.erase("stop");
    if (!s.evicting_since) s.evicting_since = at_.unix;
  }
  void operator()(const events::NodeEvicted& e) const {
    s.lost.insert(e.node);
    s.evicted.insert(e.node);
    if (!e.sign.empty()) s.evictions[e.sign].insert(e.node);
    s.slow.erase(e.node);
    left(e.node);
  }
  void operator()(const events::SparePromoted&) const {}
  void operator()(const events::RunShrunk&) const {}
  void operator()(const events::RunGrown&) const {}
  void operator()(const events::SpareHealth& e) const;
  void operator()(const events::FindingShared& e) const;
  void operator()(const events::Straggler& e) const { s.slow[e.node] = e.evidence; }
  void operator()(const events::PartnerCopies& e) const {
    if (e.on)
      s.copies_off.erase(e.node);
    else
      s.copies_off[e.node] = e.evidence;
  }
  void operator()(const events::PaceKnown& e) const {
    for (const auto& [phase, known] : e.phases) s.pace[phase] = known;
    if (e.phases.contains(silence_pace)) s.unjudged_s = 0;
  }
  void operator()(const events::SilentCorruption& e) const;
  void operator()(const events::CheckpointDurable& e) const;
  void operator()(const events::CheckpointDropped& e) const {
    decided(e.attempt, e.step, false);
    ++s.dropped;
    s.dropped_why = e.note;
  }
  void operator()(const events::CheckpointDamaged& e) const;
  void operator()(const events::CheckpointsRemoved& e) const {
    for (const std::int64_t step : e.steps) s.durable.erase(step);
  }
  void operator()(const events::Paused&) const {
    s.paused = true;
    s.heard.erase("pause");
  }
  void operator()(const events::Resumed&) const { s.paused = false; }
  void operator()(const events::OrderHeard& e) const { s.heard.insert(e.order); }
  void operator()(const events::Drain& e) const;
  void operator()(const events::RunFinished& e) const {
    s.outcome = RunOutcome{e.exit_code, e.status, e.why, at_.unix, e.exclude, at_.term};
  }
  void operator()(const UnknownEvent&) const {}

 private:
  AttemptRecord* attempt(int number) const {
    for (auto& a : s.attempts)
      if (a.number == number) return &a;
    return nullptr;
  }
  /// The node need not leave any more.
  void left(const std::string& node) const {
    s.evicting.erase(node);
    if (s.evicting.empty()) s.evicting_since.reset();
  }
  void decided(int number, std::int64_t step, bool durable) const {
    if (!s.attempts.empty() && number == s.attempts.back().number) s.commit_outcomes[step] = durable;
  }

  RunState& s;
  const Envelope& at_;
};

void Fold::operator()(const events::LeaderElected& e) const {
  if (s.began_at == 0) s.began_at = at_.unix;
  s.leader = e.node;
  if (e.job == s.job) return;
  // A new allocation (a requeue, or the run submitted again): other nodes, and an earlier outcome no longer
  // binds.
  s.job = e.job;
  if (s.attempt_live()) {
    // Its ranks ended with their allocation; nothing has recorded when, or how far they came.
    auto& last = s.attempts.back();
    last.ended_at = s.last_at;
    last.cause = "allocation ended";
    if (last.restored) last.last_step = std::max({last.last_step, last.restored->step, s.durable_step});
  }
  s.job_term = at_.term;
  s.job_began_at = at_.unix;
  // Who submits a stopped run again has changed something: it is tried again.
  if (s.over_for_good()) {
    s.no_progress = s.restarts = s.same_step_count = 0;
    s.unjudged_s = 0;
    s.worked = false;
    end_setbacks(s);
  }
  s.lost.clear(), s.suspects.clear(), s.evicted.clear(), s.evictions.clear(), s.failures.clear(),
      s.health.clear(), s.slow.clear();
  s.shared_findings.clear();
  s.claims.clear();
  s.setback_s = 0;  // the time is each job's; its waits go on growing
  s.false_starts = 0;
  s.pace.clear();  // other nodes, and perhaps other settings
  s.evicting.clear();
  s.evicting_since.reset();
  s.paused = false;
  s.outcome.reset(), s.drain.reset();
}

void Fold::operator()(const events::SettingsChanged& e) const {
  s.unjudged_s = 0;
  // Another program, environment or directory has not worked yet.
  for (const auto& [key, values] : e.settings) s.worked = s.worked && !key.starts_with("rank.");
}

void Fold::operator()(const events::AttemptPlanned& e) const {
  AttemptRecord a;
  a.number = e.attempt;
  a.term = at_.term;
  a.placement = e.placement;
  a.planned_at = at_.unix;
  a.durable_before = s.durable_step;
  s.attempts.push_back(std::move(a));
  s.commit_outcomes.clear();
  s.heard.clear();
  s.copies_off.clear();
  s.final_state.reset();  // of a run that is continued
}

void Fold::operator()(const events::Restored& e) const {
  auto* a = attempt(e.attempt);
  if (!a) return;
  a->restored = control::Restored{e.step, e.level, e.digest, e.note};
  a->restored_s = std::max(0.0, at_.unix - a->planned_at - a->launched_s.value_or(0));
  // An attempt that ended before it had any state did no steps; the steps that are repeated now are of the
  // attempt before it.
  auto* before = a;
  while (before != s.attempts.data() && !(--before)->restored) {
  }
  if (before != a && before->restored)
    before->lost_steps = std::max<std::int64_t>(0, before->last_step - a->restored->step);
}

void Fold::operator()(const events::FirstStep& e) const {
  auto* a = attempt(e.attempt);
  if (!a) return;
  a->first_step_at = at_.unix;
  if (e.step > s.best_step) end_setbacks(s);
  a->first_step_s = std::max(
      0.0, *a->first_step_at - a->planned_at - a->launched_s.value_or(0) - a->restored_s.value_or(0));
  // Of all attempts that ended since the last step: a second failure during a recovery prolongs the first
  // one's.
  for (auto* before = a; before != s.attempts.data() && (--before)->ended_at && !before->recovered_s;)
    before->recovered_s = *a->first_step_at - *before->ended_at;
}

void Fold::operator()(const events::AttemptEnded& e) const {
  auto* a = attempt(e.attempt);
  if (!a) return;
  a->ended_at = at_.unix;
  a->cause = e.cause;
  a->node = e.node;
  a->rank = e.rank;
  a->detected_s = e.detected_s;
  a->decided_s = e.decided_s;
  a->evidence = e.evidence;
  a->advice = e.advice;
  a->xid = e.xid;
  a->xid_rank = e.xid_rank;
  a->last_step = std::max(a->last_step, e.step);
  a->reports = e.reports;
  a->ran_s = e.ran_s;
  if (e.unjudged_s > 0) {
    s.unjudged_s = e.unjudged_s;
    s.pace.erase(silence_pace);
  }
  const bool long_run = !a->reports && a->ran_s >= moved_on_s;
  if (long_run) s.restarts = 0;
  const bool moved = a->last_step > s.best_step || s.durable_step > a->durable_before;
  s.best_step = std::max(s.best_step, a->last_step);
  if (a->last_step > s.same_step || e.progress_assumed)
    s.same_step_count = 0;  // what ended the others there does not always
  if (moved || e.progress_assumed) s.no_progress = 0;
  if (moved || long_run || e.kind == "program") end_setbacks(s);
  if (moved || e.progress_assumed || a->first_step_at) {
    s.worked = true;
    s.false_starts = 0;
  } else if (s.worked && is_false_start(*a, e)) {
    if (++s.false_starts == 1) s.false_since = a->planned_at;
  } else if (e.kind == "program") {
    s.false_starts = 0;
  }
  if (e.kind == "program") {
    count_program(s, *a, e, moved || e.progress_assumed);
  } else if (e.kind == "infrastructure" && !moved && !long_run) {
    ++s.setbacks;
    s.setback_s += std::max(0.0, a->first_step_at.value_or(at_.unix) - a->planned_at);
  }
  if (!a->node.empty() && e.blame == name_of(Blame::claim))
    s.claims[a->node] = e.evidence.empty() ? e.cause : e.evidence.front();
}

void Fold::operator()(const events::SpareHealth& e) const {
  using Fitness = control::NodeHealth::Fitness;
  const auto fitness = control::fitness_called(e.fitness).value_or(Fitness::unknown);
  control::NodeHealth& health = s.health[e.node] = {fitness, e.evidence, e.numerics};
  for (const auto& [check, found] : e.checks)
    health.findings.push_back({check, control::fitness_called(found).value_or(Fitness::unknown), ""});
  if (fitness == Fitness::critical || fitness == Fitness::warning)
    s.pasts[e.node].checked(marked(
        fitness == Fitness::critical ? NodeMark::What::critical : NodeMark::What::warned, s, at_.unix));
  else if (fitness == Fitness::ok)
    s.pasts[e.node].checked_ok();
}

void Fold::operator()(const events::FindingShared& e) const {
  s.shared_findings[e.check] =
      std::to_string(e.nodes) + " of " + std::to_string(e.of) + " nodes (" + e.fitness + "): " + e.evidence;
  for (auto& [node, health] : s.health) {
    auto own = own_health(health, s.shared_findings);
    if (own.findings.size() == health.findings.size()) continue;
    if (!own.findings.empty()) own.why = health.why;  // the record does not have the words of each
    health = std::move(own);
    if (health.findings.empty()) s.pasts[node].checked_ok();
  }
}

void Fold::operator()(const events::CheckpointDurable& e) const {
  decided(e.attempt, e.step, true);
  s.dropped = 0;
  s.dropped_why.clear();
  // A checkpoint that an attempt wrote after its state may have become wrong is not used, even if it is
  // sound.
  if (s.trusted_step >= 0 && e.attempt <= s.tainted_attempt && e.step > s.trusted_step) return;
  if (e.step > s.durable_step) {
    s.durable_at = at_.unix;
    s.restarts = 0;
    end_setbacks(s);
  }
  s.durable_step = std::max(s.durable_step, e.step);
  s.durable.insert(e.step);
  if (s.durable.size() > durable_kept) s.durable.erase(s.durable.begin());
  if (s.drain && !s.drain->what.stop && e.step >= s.drain->step) s.drain.reset();
  if (s.trusted_step < 0) return;
  s.trusted_step = std::max(s.trusted_step, e.step);
  if (s.trusted_step >= s.tainted_step)
    s.trusted_step = s.tainted_step = -1;  // newer than all checkpoints that are in doubt
}

/// The newest before it is the one to begin from, until there is a newer one.
void Fold::operator()(const events::CheckpointDamaged& e) const {
  s.durable.erase(e.step);
  if (e.step != s.durable_step) return;
  s.durable_step = s.durable.empty() ? -1 : *s.durable.rbegin();
  s.durable_at.reset();
}

void Fold::operator()(const events::Drain& e) const {
  if (s.drain && s.drain->what.stop) {
    s.drain->for_good = s.drain->for_good || e.for_good;
    return;
  }
  if (s.drain && !e.stop) return;
  s.drain = RunState::Draining{{e.stop, e.reason}, at_.unix, e.step, e.for_good};
  s.heard.erase(e.stop ? "stop" : "save");
}

void Fold::operator()(const events::SilentCorruption& e) const {
  s.trusted_step = e.trusted_step;
  s.tainted_step = std::max(s.tainted_step, e.step);
  s.tainted_attempt = e.attempt;
  s.durable.erase(s.durable.upper_bound(s.trusted_step), s.durable.end());
  s.durable_step = s.durable.empty() ? -1 : *s.durable.rbegin();
  s.durable_at.reset();  // that of an older one is not remembered
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

void apply(RunState& state, const LogEntry& entry) {
  std::visit(Fold(state, entry.envelope), entry.event);
  for (const auto& [node, what] : faults_in(entry.event)) {
    state.pasts[node].add(marked(what, state, entry.envelope.unix));
    if (what == NodeMark::What::ended_attempt) ++state.failures[node];
  }
  state.time.take(entry);
  state.last_at = entry.envelope.unix;
}

}  // namespace holdfast::launcher

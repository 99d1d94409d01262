// An attempt has failed: who is to blame (diagnosis), the consequences for nodes, and what to do next
// (policy).
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using Kind = Failure::Kind;

constexpr double signs_life_s = 600;
constexpr std::size_t signs_kept = 1000;
constexpr double sign_is_news_s = 60;
// An attempt that has lived so long is not a setback, even of a program that does not report progress.
constexpr double settled_s = 600;
constexpr std::size_t seen_signs = 5;  // recorded beside a failure that needs no diagnosis

}  // namespace

void Supervisor::node_signs(int n, const control::NodeSigns& what) {
  bool ends_node = false;
  for (const auto& sign : what.signs) {
    signs_.push_back({n, sign, now_ - 1e-3 * static_cast<double>(sign.age_ms)});
    ends_node = ends_node || sign.age_ms <= 1e3 * sign_is_news_s;
  }
  std::erase_if(signs_, [&](const SeenSign& s) { return s.at < now_ - signs_life_s; });
  if (signs_.size() > signs_kept)
    signs_.erase(signs_.begin(), signs_.end() - static_cast<std::ptrdiff_t>(signs_kept));
  if (!ends_node || pending_ || stage_ == Stage::over || lost(n)) return;
  // Failing hardware ends its ranks sooner or later: the node is replaced now, while nothing is lost. A link
  // may come back.
  std::vector<SeenSign> own;
  std::copy_if(signs_.begin(), signs_.end(), std::back_inserter(own),
               [&](const SeenSign& s) { return s.node == n; });
  std::vector<std::string> names;
  for (const auto& node : roster_.nodes) names.push_back(node.name);
  const Diagnosis found = diagnose({}, own, names);
  if (!found.ends_node || found.node != n || found.kind == "link_down") return;
  if (slot_of(n) < 0 || has_spare_for(n)) evict(n, found.says);
}

/// Signs of nodes with ranks: those of spares explain no failure.
std::vector<SeenSign> Supervisor::signs_that_count() const {
  std::vector<SeenSign> out;
  std::copy_if(signs_.begin(), signs_.end(), std::back_inserter(out),
               [this](const SeenSign& s) { return slot_of(s.node) >= 0; });
  return out;
}

Failure Supervisor::diagnosed() const {
  Failure f = *pending_;
  if (ends_.empty() || f.kind != Kind::rank_exited) return f;
  std::vector<std::string> names;
  for (const auto& node : roster_.nodes) names.push_back(node.name);
  Diagnosis d = diagnose(ends_, signs_that_count(), names);
  f.node = d.node;
  f.rank = d.rank;
  f.blame = d.blame;
  f.ends_node = d.ends_node;
  f.same_again = d.same_again;
  f.gpu = std::move(d.gpu);
  f.cause = d.cause;
  f.evidence = d.says;
  f.advice = d.advice;
  f.seen = std::move(d.evidence);
  f.ended_nodes = std::move(d.ended_nodes);
  const auto own =
      std::find_if(ends_.begin(), ends_.end(), [&](const RankEnd& e) { return e.rank == f.rank; });
  f.status = own == ends_.end() ? 0 : own->status;
  // The exit code alone may only mean that a rank has lost its agent.
  f.later = f.cause == "checkpoint_unreadable" &&
            std::any_of(ends_.begin(), ends_.end(),
                        [](const RankEnd& e) { return e.status == static_cast<int>(Exit::transient); });
  f.lost_peers = d.kind == "peer_lost";
  if (f.evidence.empty()) f.evidence = fmt::format("{} on {}", name_of(f.kind), name(ends_.front().node));
  return f;
}

void Supervisor::fail(Failure failure) {
  const bool heard = pending_ && failure.kind != Kind::node_lost && failure.kind != Kind::leader_changed;
  const bool hung = hang_ && failure.kind == Kind::rank_hung;
  const double decided = heard ? now_ - pending_since_ : hung ? now_ - hang_->since : 0;
  const AttemptRecord& live = state_.attempts.back();
  const bool setback =
      by_infrastructure(failure) && !live.first_step_at && now_ + unix_offset_ - live.planned_at < settled_s;
  // Nodes of one switch fall silent one after the other. The last ones end the attempt that followed the loss
  // of the first ones, before it has really begun.
  const bool untried =
      failure.kind == Kind::node_lost && (stage_ == Stage::clearing || stage_ == Stage::starting);
  const double left = hours_left();
  std::vector<std::string> evidence = {failure.evidence};
  evidence.insert(evidence.end(), failure.seen.begin(), failure.seen.end());
  if (ends_.empty() && failure.node >= 0)
    for (auto s = signs_.rbegin(); s != signs_.rend() && evidence.size() <= seen_signs; ++s)
      if (s->node == failure.node)
        evidence.push_back(fmt::format("{:.1f} s before: {} {}", now_ - s->at, s->sign.kind, s->sign.text));
  events::AttemptEnded ended{
      .attempt = attempt(),
      .step = highest_step(),
      .cause = failure.cause.empty() ? name_of(failure.kind) : failure.cause,
      .node = failure.node < 0 ? "" : name(failure.node),
      .rank = failure.rank,
      .healthy = on_healthy_nodes(failure),
      .blamed = blames_node(failure),
      .blame = name_of(blame_of(failure)),
      .counts = !untried && !setback && failure.kind != Kind::leader_changed && failure.kind != Kind::evicted,
      .untried = untried,
      .restart = !untried && failure.kind != Kind::evicted,
      .setback = setback,
      .detected_s = heard ? now_ - pending_since_ : failure.silent_s,
      .decided_s = decided,
      .evidence = std::move(evidence),
      .advice = failure.advice,
      .gpu = failure.gpu};
  tell_progress(ended);
  record(std::move(ended));
  pending_.reset(), hang_.reset();
  update_nodes(failure);
  if (stopping() && !worth_saving()) return finish(drained());
  const RunState state = without_unheard_nodes();
  const config::Supervise limits = failure.kind == Kind::evicted ? patient() : limits_;  // it was ordered
  Decision decision =
      decide({roster_, limits, facts_.shrinking, state, placement_, views(), left}, failure, worth_saving());
  carry_out(std::move(decision), failure);
}

/// Records which nodes are evicted and which are suspects after this failure.
void Supervisor::update_nodes(const Failure& failure) {
  const auto evict_now = [&](int n, const std::string& why) {
    if (!state_.evicted.contains(name(n))) record(events::NodeEvicted{name(n), why});
  };
  for (const int n : failure.ended_nodes) evict_now(n, failure.evidence);
  if (failure.ends_node && failure.node >= 0) evict_now(failure.node, failure.evidence);
  const auto leaving = state_.evicting;
  for (const auto& [node, why] : leaving) record(events::NodeEvicted{node, why});
  if (failure.node < 0 || lost(failure.node) || state_.suspects.contains(name(failure.node))) return;
  const auto failures = state_.failures.find(name(failure.node));
  const bool often = failures != state_.failures.end() && failures->second >= limits_.max_node_failures;
  if (failure.kind != Kind::start_failed && failure.blame != Blame::node && !often) return;
  record(events::NodeSuspected{
      name(failure.node), often ? fmt::format("{} attempts have ended by {}; the last: {}", failures->second,
                                              name(failure.node), failure.evidence)
                                : failure.evidence});
  if (limits_.check_spares_s > 0) actions_.push_back(CheckNodes{{failure.node}});
}

void Supervisor::carry_out(Decision decision, const Failure& failure) {
  // While the run stops, a lack of nodes is left to the next job.
  if (stopping() && decision.stop &&
      (decision.stop->exit_code == static_cast<int>(Exit::out_of_spares) ||
       decision.stop->exit_code == static_cast<int>(Exit::transient)))
    decision.stop = drained();
  if (decision.stop) return finish(*decision.stop);
  if (decision.answer == PolicyAction::requeue && !stopping())
    record(
        events::Drain{attempt(), highest_step(), true, false, failure.evidence + "; no spare node is left"});
  for (const Promotion& p : decision.promotions) {
    if (slot_of(p.to) >= 0) continue;  // the node only moves to another slot
    record(events::SparePromoted{p.slot, p.from < 0 ? std::nullopt : std::optional(name(p.from)), name(p.to),
                                 roster_.nodes[p.to].scalable_unit});
  }
  const int before = static_cast<int>(placement_.size()), after = static_cast<int>(decision.placement.size());
  const double slower = facts_.shrinking.together > 0 ? slowdown(facts_.shrinking, after) : 1.0;
  if (after < before) record(events::RunShrunk{after, roster_.slots(), slower, decision.because});
  if (after > before) record(events::RunGrown{after, roster_.slots(), slower, decision.because});
  auto placement = decision.placement;
  begin_attempt(std::move(placement), decision);
}

/// Hours of training at full size that are left, from the step times of this attempt; negative: not known.
double Supervisor::hours_left() const {
  if (!state_.attempted() || facts_.shrinking.steps <= 0) return -1;
  const auto& live = state_.attempts.back();
  if (!live.first_step_at || !live.restored) return -1;
  const std::int64_t reached = std::max(highest_step(), live.last_step);
  const double steps = static_cast<double>(reached - live.restored->step - 1);
  if (steps < 1) return -1;
  const double until = live.ended_at.value_or(now_ + unix_offset_);
  double each = (until - *live.first_step_at) / steps;
  if (facts_.shrinking.together > 0) each /= slowdown(facts_.shrinking, static_cast<int>(placement_.size()));
  return static_cast<double>(std::max<std::int64_t>(0, facts_.shrinking.steps - reached)) * each / 3600;
}

/// Silent corruption: state that was written since the last comparison that came out equal may be wrong, at
/// every level.
void Supervisor::rank_doubt(int, const control::RankDoubt& what) {
  if (what.attempt != attempt() || stage_ == Stage::over || stage_ == Stage::clearing ||
      !state_.attempt_live())
    return;
  std::vector<int> nodes;
  for (const int rank : what.accused)
    if (rank >= 0 && rank < world() &&
        std::find(nodes.begin(), nodes.end(), node_of_rank(rank)) == nodes.end())
      nodes.push_back(node_of_rank(rank));
  std::vector<std::string> names;
  for (const int n : nodes) names.push_back(name(n));
  const std::string evidence =
      fmt::format("the comparison of {} came out unequal after step {}{}{}{}", what.check, what.step,
                  names.empty() ? "" : fmt::format(" on {}", fmt::join(names, ", ")),
                  what.why.empty() ? "" : ": ", what.why);
  record(events::SilentCorruption{attempt(), std::max(highest_step(), what.step), what.check, what.step,
                                  what.accused, names, trusted_before(what), evidence});
  if (nodes.size() == 1)
    record(events::NodeEvicted{names.front(), evidence});
  else
    for (const auto& node : names) record(events::NodeSuspected{node, evidence});
  Failure failure;
  failure.kind = Kind::corrupted;
  failure.evidence = evidence;
  failure.node = nodes.size() == 1 ? nodes.front() : -1;
  failure.rank = what.accused.size() == 1 ? what.accused.front() : -1;
  failure.blame = nodes.size() == 1 ? Blame::node : Blame::nothing;
  pending_.reset();
  fail(std::move(failure));
}

/// The newest durable step up to which the comparisons came out equal; 0: begin again.
std::int64_t Supervisor::trusted_before(const control::RankDoubt& what) const {
  const auto after = state_.durable.upper_bound(what.step);
  return after == state_.durable.begin() ? 0 : *std::prev(after);
}

void Supervisor::finish(RunOutcome outcome) {
  if (state_.attempt_live()) {
    events::AttemptEnded ended{
        .attempt = attempt(), .step = highest_step(), .cause = outcome.status, .counts = false};
    tell_progress(ended);
    record(std::move(ended));
  }
  events::RunFinished finished{outcome.exit_code, outcome.status, outcome.why, {}};
  if (outcome.exit_code == static_cast<int>(Exit::transient)) finished.exclude = to_exclude(state_);
  record(std::move(finished));
  stage_ = Stage::over;
  actions_.push_back(FinishRun{outcome.exit_code});
}

}  // namespace holdfast::launcher

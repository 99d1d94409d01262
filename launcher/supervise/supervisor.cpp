// The leader tells the time by at() before each report and before tick(), and fetches the actions afterwards.
// tick() goes through the rows of the stage table from top to bottom: for a row of the present stage found()
// says whether its trigger holds now, and as what Failure; carry_out() does its effect and enters the next
// stage. The first row that holds ends the tick, unless it says goes_on. Reports are in
// supervisor_reports.cpp, effects that decide or record in supervisor_effects.cpp.
//
// No node is blamed for a pause of the leader itself: if no report or no tick came for more than a second,
// all deadlines are moved by that time. While an order to clear or to launch waits to be sent, no clearing
// and no start is overdue; their time begins with ordered(). A failure that waits for its diagnosis is
// diagnosed when every node with a slot has been heard since, and a rank that holds on order does not hang.
#include "launcher/supervise/supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/attempt_plan.hpp"
#include "launcher/supervise/budget_table.hpp"
#include "launcher/supervise/drain.hpp"

namespace holdfast::launcher {
namespace {

// A leader without a majority for so long resigns: other agents, or SLURM, may go on without it.
constexpr double minority_limit_s = 120;
// Agents send heartbeats several times a second, the own one too. If none at all came for so long, this
// process was suspended, and the messages of that time have not been read yet.
constexpr double suspended_gap_s = 1;

std::vector<std::string> names_of(const Roster& roster) {
  std::vector<std::string> names;
  for (const auto& node : roster.nodes) names.push_back(node.name);
  return names;
}

}  // namespace

RunFacts run_facts_of(const config::RunConfig& resolved) {
  return {shrinking_of(resolved), config::promises_of(resolved.rank)};
}

Supervisor::Supervisor(Roster roster, config::Supervise limits, int drain_s, int term, RunState state,
                       double now, double unix_now, RunFacts facts, const StageTable& table)
    : roster_(std::move(roster)),
      limits_(limits),
      facts_(facts),
      drain_s_(drain_s),
      term_(term),
      table_(table),
      state_(std::move(state)),
      now_(now),
      unix_offset_(unix_now - now),
      stage_since_(now),
      nodes_(names_of(roster_), limits_, now),
      clear_(limits_),
      attempt_(roster_.ranks_per_node, facts_.promises, 1e-3 * limits_.heartbeat_ms,
               placement_to_begin_with(roster_, state_)),
      failures_(names_of(roster_)),
      hangs_(limits_, roster_.world(), state_.pace, roster_.work, state_.unjudged_s),
      slow_(limits_, names_of(roster_), attempt_.placement(), roster_.ranks_per_node),
      checks_(roster_.nodes.size(), limits_.check_spares_s, !state_.attempted(), now) {
  limits_.max_evictions = max_evictions(roster_, limits_);
  for (const auto& [node, found] : state_.health)
    if (const int n = roster_.node_called(node); n >= 0) checks_.known(n, found);
}

std::vector<Action> Supervisor::take_actions() { return std::exchange(actions_, {}); }

void Supervisor::at(double now) {
  const double gap_s = now - now_;
  now_ = now;
  if (gap_s <= suspended_gap_s) return;
  nodes_.suspended(gap_s, now);
  if (tick_at_ < 0) return;
  extend_deadlines(gap_s);  // before messages are read that have waited
  tick_at_ += gap_s;
}

/// Nothing was decided for so long.
void Supervisor::extend_deadlines(double seconds) {
  stage_since_ = std::min(stage_since_ + seconds, now_);
  nodes_.extend_deadlines(seconds, now_);
  clear_.extend_deadlines(seconds, now_);
  attempt_.extend_deadlines(seconds, now_);
  failures_.extend_deadlines(seconds, now_);
  hangs_.extend_deadlines(seconds, now_);
  ladder_.extend_deadlines(seconds);
}

void Supervisor::ordered() {
  if (std::exchange(order_waits_, false)) stage_since_ = now_;
}

void Supervisor::tick() {
  if (const double gap_s = now_ - tick_at_; tick_at_ >= 0 && gap_s > suspended_gap_s) extend_deadlines(gap_s);
  tick_at_ = now_;
  for (const StageRow& row : table_) {
    if (!row.stages.contains(stage_)) continue;
    const auto failure = found(row.trigger);
    if (!failure) continue;
    carry_out(row, *failure);
    if (!row.goes_on) return;
  }
}

/// Is it so now? With the failure that it is; of what is no failure, an empty one.
std::optional<Failure> Supervisor::found(Trigger trigger) {
  const auto when = [](bool holds) { return holds ? std::optional(Failure{}) : std::nullopt; };
  const auto all_placed = [this](auto holds) {
    return std::all_of(placement().begin(), placement().end(), holds);
  };
  switch (trigger) {
    case Trigger::drain_overdue:
      return when(stopping() && unix_now() >= state_.drain->at + drain_s_ &&
                  !saves_on(state_.drain->for_good, state_.drain->at));
    case Trigger::eviction_overdue:
      if (!state_.evicting_since || stopping() || failures_.pending() ||
          unix_now() < *state_.evicting_since + drain_s_ || saves_on(true, *state_.evicting_since))
        return std::nullopt;
      return eviction(
          state_, roster_,
          fmt::format("the ranks have not {} within {} s", attempt_.follows() ? "saved" : "ended", drain_s_));
    case Trigger::nodes_silent:
      return when(nodes_.count_majority(state_.lost, now_) && !silent_nodes().empty());
    case Trigger::minority_lasts:
      return when(nodes_.minority_s(now_) > minority_limit_s);
    case Trigger::checks_due:
      return when(checks_.due(now_));
    case Trigger::outcome_known:
      return when(state_.outcome.has_value());
    case Trigger::agents_awaited:
      return when(!all_placed([this](int n) { return lost(n) || nodes_.connected(n); }));
    case Trigger::checks_awaited:
      return when(!state_.attempted() && checks_.awaits_first(nodes_.heard_now(now_), now_));
    case Trigger::attempt_whole:  // the end of a node that is already lost would never be noticed
      return when(state_.attempt_live() && lost_in_placement() < 0 && attempt_.whole());
    case Trigger::attempt_broken:
      return broken_attempt();
    case Trigger::nothing_runs:
      return when(!state_.attempt_live());
    case Trigger::node_not_cleared:
      if (uncleared() != ClearWatch::Finding::node || !nodes_.majority(state_.lost, now_))
        return std::nullopt;
      return uncleared_node();
    case Trigger::most_not_cleared:
      return when(state_.attempts.back().waits_for.empty() &&
                  (uncleared() == ClearWatch::Finding::most || uncleared() == ClearWatch::Finding::overdue));
    case Trigger::clearing_overdue:
      if (uncleared() != ClearWatch::Finding::overdue) return std::nullopt;
      return old_ranks_stay();
    case Trigger::state_open:
      return when(!ladder_.settled() && all_cleared());
    case Trigger::all_cleared:
      return when(now_ >= launch_at_ && ladder_.settled() && all_cleared());
    case Trigger::signalled_ended:
      return when((signalled() || ended_on_order()) && stopping() && attempt_.unended() == 0);
    case Trigger::signalled_left:
      if (!(signalled() || ended_on_order()) || stopping() || attempt_.unended() > 0) return std::nullopt;
      return eviction(state_, roster_, "the ranks have ended");
    case Trigger::signalled_run:
      return when(signalled());
    case Trigger::all_done:
      return when(attempt_.all_exited_well());
    case Trigger::failure_clear:
      if (!failures_.pending() || !nodes_.all_heard_since(placement(), failures_.pending_since()))
        return std::nullopt;
      return diagnosed();
    case Trigger::failure_waits:
      return when(failures_.pending());
    case Trigger::all_started:
      return when(!attempt_.missing());
    case Trigger::start_overdue:
      return overdue_start();
    case Trigger::rank_vanished:
      return when(attempt_.vanished(nodes_.heard_now(now_), now_).has_value());
    case Trigger::rank_hung:
      return hang();
    case Trigger::pace_learned:
      return when(hangs_.pace_is_news(state_.pace, now_));
    case Trigger::node_slow:
      return when(slow_.any());
    default:
      return std::nullopt;  // it is reported
  }
}

/// Ranks may be reconnecting to a restarted agent: they get time, less of it when every agent is connected,
/// and none when they would be there in vain.
std::optional<Failure> Supervisor::broken_attempt() const {
  if (!state_.attempt_live()) return std::nullopt;
  bool all_here = true;
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()); ++n)
    all_here = all_here && (lost(n) || nodes_.hears(n, now_));
  const int gone = lost_in_placement();
  const bool in_vain = all_here && gone >= 0;
  if (!in_vain && now_ - stage_since_ < (all_here ? 1e-3 : 2e-3) * limits_.node_silence_ms)
    return std::nullopt;
  if (failures_.pending() && gone < 0) return diagnosed();
  Failure failure;
  failure.kind = gone < 0 ? Failure::Kind::leader_changed : Failure::Kind::node_lost;
  failure.node = gone;
  failure.evidence = gone < 0 ? "the new leader has not found all ranks of the attempt"
                              : name(gone) + " was lost when the leader changed";
  if (gone >= 0) failure.silent_s = nodes_.waited_s(gone, now_);
  return failure;
}

ClearWatch::Finding Supervisor::uncleared() {
  if (order_waits_) return ClearWatch::Finding::nothing;
  return clear_.judge(static_cast<int>(uncleared_nodes().size()), static_cast<int>(placement().size()),
                      stage_since_, state_.setback_s, now_);
}

Failure Supervisor::uncleared_node() const {
  Failure failure;
  failure.node = uncleared_nodes().front();
  failure.silent_s = now_ - stage_since_;
  failure.evidence = fmt::format("{} could not end its old ranks within {} s{}", name(failure.node),
                                 limits_.clear_s, clear_.why(failure.node, attempt()));
  return failure;
}

/// The next job may get other nodes, and SLURM ends what is left on these, or drains them.
Failure Supervisor::old_ranks_stay() const {
  Failure failure;
  failure.kind = Failure::Kind::start_failed;
  failure.cause = "old ranks remain";
  failure.blame = Blame::shared;
  failure.evidence = fmt::format("{}, after {:.0f} s", old_ranks(), now_ - stage_since_);
  failure.advice =
      "find out why the file system or driver that they wait for does not answer: a process that waits in "
      "the kernel cannot be killed";
  return failure;
}

std::optional<Failure> Supervisor::overdue_start() const {
  const auto missing = attempt_.missing();
  if (!missing || order_waits_ || now_ - stage_since_ <= limits_.start_s) return std::nullopt;
  const int node = attempt_.node_of(missing->first);
  Failure failure;
  failure.kind = Failure::Kind::start_failed;
  // A node is to blame only when the ranks of the others came up.
  failure.node = missing->one_node && placement().size() > 1 ? node : -1;
  failure.rank = missing->first;
  failure.evidence = fmt::format("{} of {} ranks did not start within {} s, the first is rank {} on {}",
                                 missing->count, world(), limits_.start_s, missing->first, name(node));
  failure.silent_s = now_ - stage_since_;
  return failure;
}

std::optional<Failure> Supervisor::hang() {
  // Ranks that hold on order, and those that wait for them, are not hung; when they go on, their time starts
  // anew.
  if (state_.hold_ranks() && attempt_.any_holds()) {
    attempt_.hold(now_);
    hangs_.forget();
    return std::nullopt;
  }
  const bool all_heard =
      std::all_of(placement().begin(), placement().end(), [this](int n) { return nodes_.hears(n, now_); });
  const auto finding =
      attempt_.reports()
          ? hangs_.check(attempt_.still_ranks(state_.attempts.back().restored.has_value(), now_), all_heard,
                         now_)
          : hangs_.check_outside(attempt_.unended(), all_heard, now_);
  if (finding.dump >= 0) actions_.push_back(DumpRank{attempt_.node_of(finding.dump), finding.dump});
  if (!finding.hang) return std::nullopt;
  const int node = attempt_.node_of(finding.hang->rank);
  return failure_of(*finding.hang, node, name(node));
}

void Supervisor::carry_out(const StageRow& row, const Failure& failure) {
  switch (row.effect) {
    case Effect::wait:
      break;
    case Effect::end_attempt:
      end_attempt(failure);
      break;
    case Effect::keep_failure:
      failures_.suspect(failure, now_);
      break;
    case Effect::keep_vanished:
      take_end(*attempt_.vanished(nodes_.heard_now(now_), now_));
      break;
    case Effect::finish_drained:
      finish(drained());
      break;
    case Effect::finish_done:
      record_end({.attempt = attempt(),
                  .step = state_.final_state ? state_.final_state->step : highest_step(),
                  .cause = "finished"});
      finish({0, "done", "", 0});
      break;
    case Effect::tell_outcome:
      actions_.push_back(FinishRun{state_.outcome->exit_code});
      break;
    case Effect::resign:
      actions_.push_back(Resign{"fewer than half of the agents answer"});
      break;
    case Effect::lose_nodes:
      lose(failure.node < 0 ? silent_nodes()
                            : std::vector{SilentNode{failure.node, failure.silent_s, failure.evidence}});
      break;
    case Effect::record_old_ranks: {
      std::vector<std::string> names;
      for (const int n : uncleared_nodes()) names.push_back(name(n));
      record(events::OldRanksRemain{attempt(), std::move(names), old_ranks()});
      break;
    }
    case Effect::take_node_back:
      record(events::NodeReturned{name(failure.node),
                                  "its agent answers and has ended its old ranks: the node is a spare again, "
                                  "used after all others"});
      break;
    case Effect::check_spares:
      if (auto nodes = checks_.begin(roster_, state_.lost, placement(), nodes_.heard_now(now_), now_);
          !nodes.empty())
        actions_.push_back(CheckNodes{std::move(nodes)});
      break;
    case Effect::adopt:
      adopt();
      break;
    case Effect::plan_first:
      plan_first();
      break;
    case Effect::choose_state:
      choose_state();
      break;
    case Effect::launch:
      launch();
      break;
    case Effect::confirm_start:
      record(events::PlacementVerified{attempt(), world()});
      attempt_.watch(now_);
      break;
    case Effect::record_pace:
      record(events::PaceKnown{attempt(), hangs_.known_pace(now_)});
      break;
    case Effect::record_slow:
      record_slow();
      break;
    case Effect::tell_ranks:
      tell_ranks();
      break;
  }
  if (row.next) enter(*row.next);
}

void Supervisor::enter(Stage stage) {
  stage_ = stage;
  stage_since_ = now_;
}

}  // namespace holdfast::launcher

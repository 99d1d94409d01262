// What the supervisor does, and what its parts and the record say together.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/attempt_end.hpp"
#include "launcher/supervise/attempt_plan.hpp"
#include "launcher/supervise/drain.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {

void Supervisor::record(Event event) {
  LogEntry entry{{}, std::move(event)};
  entry.envelope.term = term_;
  entry.envelope.unix = unix_now();
  apply(state_, entry);
  actions_.push_back(Record{std::move(entry)});
}

/// With what is assumed of its progress, where the program reported none. In a hang of `silent_s` it has made
/// none.
void Supervisor::record_end(events::AttemptEnded ended, double silent_s) {
  if (!attempt_.reports())
    assume_progress(ended, state_.attempts.back(), unix_now() - silent_s, limits_.assumed_progress_s);
  record(std::move(ended));
}

void Supervisor::end_attempt(const Failure& found) {
  using Kind = Failure::Kind;
  Failure failure = found;
  keep_within_evictions(failure, state_, roster_, limits_);
  EndFacts facts{state_, roster_, highest_step()};
  if (failures_.pending() && failure.kind != Kind::node_lost && failure.kind != Kind::leader_changed) {
    facts.reported_s = facts.decided_s = now_ - failures_.pending_since();
  } else if (const auto since = hangs_.since(); since && failure.kind == Kind::rank_hung) {
    facts.decided_s = now_ - *since;
  }
  if (!failures_.any_end() && failure.node >= 0)
    facts.signs = failures_.last_signs(failure.node, attempt(), now_);
  record_end(end_by(failure, facts), failure.kind == Kind::rank_hung ? failure.silent_s : 0);
  failures_.decided();
  hangs_.forget();
  bool look = failure.node >= 0 && failure.blame == Blame::claim;
  for (auto& event : nodes_after(failure, state_, roster_, limits_)) {
    look = look || std::holds_alternative<events::NodeSuspected>(event);
    record(std::move(event));
  }
  if (look && limits_.check_spares_s > 0) actions_.push_back(CheckNodes{{failure.node}});
  if (stopping() && !worth_saving()) return finish(drained());
  const RunState state = without_unheard_nodes();
  const auto known = views();
  begin_attempt(decide({roster_, limits_, facts_.shrinking, state, placement(), known, hours_left()}, failure,
                       worth_saving()),
                failure);
}

void Supervisor::plan_first() {
  Failure absent;
  absent.kind = Failure::Kind::node_lost;
  absent.evidence = "more nodes are lost than there are spares";
  if (!state_.attempted()) record_checks();
  const RunState state = without_unheard_nodes();
  const auto known = views();
  Decision decision =
      decide({roster_, limits_, facts_.shrinking, state, placement(), known, -1, !state_.attempted()}, absent,
             false);
  // Agents may not have connected yet: a slot goes to a node that was heard, and time decides about the
  // others.
  const bool whole = !decision.stop && decision.placement.size() == placement().size();
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()) && !whole; ++n)
    if (!lost(n) && !nodes_.heard(n)) return;
  begin_attempt(std::move(decision), absent);
}

void Supervisor::begin_attempt(Decision decision, const Failure& why) {
  // While the run stops, a lack of nodes is left to the next job.
  if (stopping() && decision.stop &&
      (decision.stop->exit_code == static_cast<int>(Exit::out_of_spares) ||
       decision.stop->exit_code == static_cast<int>(Exit::transient)))
    decision.stop = drained();
  if (decision.stop) return finish(*decision.stop);
  if (decision.answer == PolicyAction::requeue && !stopping())
    record(events::Drain{attempt(), highest_step(), true, false, why.evidence + "; " + decision.short_of});
  const double wait_s = wait_before_next(state_);
  for (auto& event : plan_events(decision, placement(), attempt() + 1, roster_, state_, facts_.shrinking))
    record(std::move(event));
  launch_at_ = now_ + wait_s;
  attempt_.begin(std::move(decision.placement));
  failures_.new_attempt();
  hangs_.new_attempt();
  slow_.new_attempt(placement());
  ladder_.begin();
  enter(Stage::clearing);
  order_waits_ = true;
  actions_.push_back(ClearAll{attempt()});
}

void Supervisor::finish(const RunOutcome& outcome) {
  if (state_.attempt_live()) record_end(end_with_run(outcome.status, attempt(), highest_step()));
  events::RunFinished finished{outcome.exit_code, outcome.status, outcome.why, {}};
  if (outcome.exit_code == static_cast<int>(Exit::transient)) finished.exclude = to_exclude(state_);
  record(std::move(finished));
  enter(Stage::over);
  actions_.push_back(FinishRun{outcome.exit_code});
}

/// When a switch fails, many nodes are lost at once. All of them are recorded before anything is decided, so
/// that they end one attempt only and no slot goes to a node that is lost too.
void Supervisor::lose(const std::vector<SilentNode>& nodes) {
  std::optional<Failure> first;
  for (const auto& [n, silent_s, evidence] : nodes) {
    const int slot = attempt_.slot_of(n);
    record(events::NodeLost{name(n), slot < 0 ? std::nullopt : std::optional(slot), silent_s, evidence});
    nodes_.forget(n);
    // Without its batch script the job may be ended by SLURM, and the local levels with it.
    if (n == roster_.batch_host) ask_to_drain({false, "the batch host was lost"}, false);
    if (slot < 0 || first) continue;
    first.emplace();
    first->kind = Failure::Kind::node_lost;
    first->node = n;
    first->evidence = evidence;
    first->silent_s = silent_s;
  }
  if (first) report(Trigger::node_lost, *first);
}

void Supervisor::adopt() {
  record(events::AttemptAdopted{attempt(), highest_step()});
  const auto& live = state_.attempts.back();
  if (live.restored && highest_step() >= live.restored->step + Pace::first_rounds) hangs_.settled();
  attempt_.adopt(now_);
  // The ranks may not know the orders that were recorded last.
  if (!state_.hold_ranks()) actions_.push_back(PauseRanks{false});
  tell_ranks();
}

void Supervisor::choose_state() {
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()); ++n)
    if (lost(n)) ladder_.lost(n);
  auto moves = ladder_.climb(ladder_facts());
  if (!moves.empty()) actions_.push_back(FetchStates{attempt(), ladder_.state(), std::move(moves)});
  if (!ladder_.news()) return;
  const auto& [step, of_attempt] = ladder_.state();
  record(events::StateChosen{attempt(), step, of_attempt, ladder_.level(), ladder_.moved(), ladder_.tell()});
}

RestoreLadder::Facts Supervisor::ladder_facts() const {
  return {placement(),
          roster_.ranks_per_node,
          state_.durable_step,
          state_.trusted_step < 0,
          static_cast<double>(limits_.step_s),
          now_,
          state_.refused};
}

void Supervisor::launch() {
  if (!ladder_.reopened()) record(events::AttemptStarted{attempt()});
  order_waits_ = true;
  const StateName& sealed = ladder_.state();
  actions_.push_back(Launch{attempt(), placement(),
                            StartState{.trusted_step = state_.trusted_step,
                                       .durable_steps = newest_durable(state_),
                                       .sealed_step = sealed.step,
                                       .sealed_attempt = sealed.attempt,
                                       .sealed_level = ladder_.level()}});
  tell_ranks();
}

void Supervisor::record_slow() {
  while (const auto slow = slow_.take()) {
    record(
        events::Straggler{attempt(), slow->what, slow->rank, name(slow->node), slow->ratio, slow->evidence});
    if (limits_.on_straggler == config::OnStraggler::substitute && attempt_.slot_of(slow->node) >= 0 &&
        has_spare_for(slow->node))
      evict_by("straggler", slow->node, slow->evidence);
    if (stage_ != Stage::running) return;
  }
}

void Supervisor::tell_ranks() {
  if (const auto asked = asked_of_ranks()) {
    if (state_.paused && asked->stop) actions_.push_back(PauseRanks{false});
    actions_.push_back(TellRanks{*asked});
  }
  if (state_.hold_ranks()) actions_.push_back(PauseRanks{true});
}

// --- what is known ---

int Supervisor::lost_in_placement() const {
  const auto gone = std::find_if(placement().begin(), placement().end(), [this](int n) { return lost(n); });
  return gone == placement().end() ? -1 : *gone;
}

bool Supervisor::all_cleared() const { return uncleared_nodes().empty(); }

std::vector<int> Supervisor::uncleared_nodes() const {
  std::vector<int> out;
  for (const int n : placement())
    if (!nodes_.has_cleared(n, attempt())) out.push_back(n);
  return out;
}

/// Where they are, and what one of them waits for.
std::string Supervisor::old_ranks() const {
  constexpr std::size_t named = 8;
  const auto nodes = uncleared_nodes();
  std::vector<std::string> names;
  std::string why;
  for (const int n : nodes) {
    if (names.size() < named) names.push_back(name(n));
    if (const auto said = clear_.why(n, attempt()); why.empty() && !said.empty())
      why = fmt::format("; on {}{}", name(n), said);
  }
  if (nodes.size() > named) names.emplace_back("...");
  return fmt::format("old ranks have not ended on {} of {} nodes ({}){}", nodes.size(), placement().size(),
                     fmt::join(names, ", "), why);
}

bool Supervisor::ranks_hear() const {
  return stage_ == Stage::starting || stage_ == Stage::running ||
         (stage_ == Stage::gathering && state_.attempt_live());
}

/// Have ranks been told to end that only signals reach?
bool Supervisor::signalled() const {
  if (attempt_.follows() || !ranks_hear()) return false;
  const auto asked = state_.asked_of_ranks();
  // They have not been told to leave a node when the attempt was about to end anyway (evict()).
  return asked && asked->stop && (stopping() || !failures_.pending());
}

/// All ranks whose exit codes are not ours have ended because they were told to. They may have saved at
/// different times, and end with 75 or with 0; with 0 the run is not done, where none of them has said so.
bool Supervisor::ended_on_order() const {
  return leaves_on_order() && attempt_.unended() == 0 && !failures_.pending() && !attempt_.any_finished();
}

bool Supervisor::leaves_on_order() const {
  const auto asked = state_.asked_of_ranks();
  return !facts_.promises.our_verdicts && state_.attempt_live() && asked && asked->stop;
}

/// Ranks that are saving get more time than drain_s, where nothing but an order ends them: SLURM would not
/// wait. A save that does not come to its end is a hang.
bool Supervisor::saves_on(bool by_order, double since) const {
  return by_order && ranks_hear() && attempt_.any_saves() && unix_now() < since + limits_.step_s;
}

std::optional<control::Drain> Supervisor::asked_of_ranks() const {
  auto asked = state_.asked_of_ranks();
  if (!asked || !asked->stop) return asked;
  const double since = stopping() ? state_.drain->at : state_.evicting_since.value_or(state_.last_at);
  asked->until = static_cast<std::int64_t>(since) + drain_s_;
  return asked;
}

bool Supervisor::worth_saving() const {
  // Where saves need not be on record, only live ranks know what they could save.
  return (!facts_.promises.writes_run_dir && state_.attempt_live() && ranks_hear()) ||
         launcher::worth_saving(state_);
}

std::int64_t Supervisor::highest_step() const {
  const auto* live = state_.attempt_live() ? &state_.attempts.back() : nullptr;
  return std::max<std::int64_t>(live && live->restored ? live->restored->step : 0, attempt_.highest_step());
}

double Supervisor::hours_left() const {
  return launcher::hours_left(state_, facts_.shrinking, static_cast<int>(placement().size()), highest_step(),
                              unix_now());
}

RunOutcome Supervisor::drained() const {
  std::optional<std::string> unseen;
  if (!saves_are_known(state_, facts_.promises))
    unseen = state_.attempt_live() && signalled()
                 ? end_after_signal(attempt_.unended(), world(), attempt_.sigterms(),
                                    unix_now() - state_.drain->at)
                 : "";
  RunOutcome outcome = launcher::drained(state_, highest_step(), unseen);
  if (unix_now() >= state_.drain->at + drain_s_ && untaken(control::Order::Verb::stop))
    outcome.why += "; no rank has said that it took the order to end";
  return outcome;
}

/// The state for the choice of a spare: a node that has never been heard counts as lost, one whose heartbeat
/// is late comes last (NodeView::heard_now). When a switch fails, a node and the spare beside it are lost
/// together, and the spare may have been heard one heartbeat later.
RunState Supervisor::without_unheard_nodes() const {
  RunState state = state_;
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()); ++n)
    if (!nodes_.heard(n)) state.lost.insert(name(n));
  return state;
}

std::vector<NodeView> Supervisor::views() const {
  return checks_.views(placement(), nodes_.heard_now(now_), state_.shared_findings);
}

bool Supervisor::has_spare_for(int node) const {
  const RunState state = without_unheard_nodes();
  const auto known = views();
  const int spare = best_spare(roster_, state, placement(), node, known);
  return spare >= 0 && known[spare].heard_now && !known[spare].unfit() &&
         !state.suspects.contains(name(spare));
}

/// When ranks fail, the kernel of a silent node does not show that it lives: the others may have noticed its
/// end.
std::vector<SilentNode> Supervisor::silent_nodes() const {
  return nodes_.silent_nodes({.lost = state_.lost,
                              .placement = placement(),
                              .ranks = attempt_.all_took_part_at(),
                              .kernels_count = !failures_.pending(),
                              .took_over = state_.attempted() && state_.job_term != term_},
                             now_);
}

}  // namespace holdfast::launcher

// What agents, ranks and people tell the supervisor.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/budget_table.hpp"
#include "launcher/supervise/drain.hpp"
#include "launcher/supervise/node_list.hpp"
#include "launcher/supervise/silent_corruption.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {

/// What it means in this stage is in the table.
void Supervisor::report(Trigger trigger, const Failure& failure) {
  if (const StageRow* row = row_of(table_, stage_, trigger)) carry_out(*row, failure);
}

// --- agents ---

void Supervisor::last_leader_heard(int n, double at) { nodes_.heard_before(n, at); }
void Supervisor::agent_gone(int n) { nodes_.disconnected(n); }
void Supervisor::agent_unreached(int n, const std::string& why) { nodes_.unreached(n, why); }
void Supervisor::kernel_answered(int n, double at) { nodes_.kernel_answered(n, at); }

void Supervisor::heartbeat(int n, const control::Heartbeat& what) {
  nodes_.heartbeat(n, now_);
  if (!state_.attempted() && checks_.ask_first(n))
    actions_.push_back(
        CheckNodes{{n}, attempt_.slot_of(n) <= 0});  // the probe: of spares, and of one active node
  // The leader before may not have had the answer.
  if (state_.attempted() && state_.claims.contains(name(n)) && !lost(n) && checks_.ask_first(n))
    actions_.push_back(CheckNodes{{n}});
  if (what.attempt != attempt()) return;
  for (const RankMove& move : attempt_.heartbeat(n, what, now_)) {
    if (stage_ == Stage::running) hangs_.moved(move);
    slow_.computed(move.rank, move.step, move.compute_s);
  }
  if (stage_ == Stage::gathering || !state_.attempt_live()) return;
  const auto off = state_.copies_off.find(name(n));
  if ((off == state_.copies_off.end()) != what.copies_off.empty())
    record(events::PartnerCopies{attempt(), name(n), what.copies_off.empty(), what.copies_off});
  const auto& live = state_.attempts.back();
  if (live.restored && !live.first_step_at && attempt_.step_of(0) > live.restored->step)
    record(events::FirstStep{live.number, attempt_.step_of(0)});
}

void Supervisor::cleared(int n, int attempt) {
  nodes_.cleared(n, attempt);
  if (!lost(n) || state_.evicted.contains(name(n)) || !nodes_.has_cleared(n, this->attempt())) return;
  if (failed_too_often(name(n), state_, limits_)) return;
  Failure node;
  node.node = n;
  report(Trigger::node_back, node);
}

void Supervisor::processes_left(int n, const control::ProcessesLeft& what) { clear_.left(n, what); }

void Supervisor::states_sealed(int n, int attempt, const std::vector<control::SealedState>& what) {
  if (attempt == this->attempt() && stage_ == Stage::clearing) ladder_.has(n, what);
}

void Supervisor::state_fetched(int n, const control::StateFetched& what) {
  if (what.attempt != attempt() || stage_ != Stage::clearing) return;
  ladder_.fetched(n, what);
  // Another node may keep it, and the state stays where it is until ranks start.
  if (what.no_room && attempt_.slot_of(n) >= 0 && has_spare_for(n))
    evict_by("no room", n, fmt::format("it cannot keep the state of rank {}: {}", what.rank, what.why));
}

void Supervisor::node_signs(int n, const control::NodeSigns& what) {
  for (const auto& sign : what.signs)
    if (sign.kind == "link_slow" && !lost(n)) slow_.link_slow(n, sign.code, sign.text);
  if (!failures_.take_signs(n, what, now_) || failures_.pending() || stage_ == Stage::over || lost(n)) return;
  // Failing hardware ends its ranks sooner or later: the node is replaced now, while nothing is lost.
  const auto ending = failures_.ends_node(n, past_xids(state_, roster_));
  if (ending && (attempt_.slot_of(n) < 0 || has_spare_for(n))) evict_by(ending->sign, n, ending->why);
}

void Supervisor::node_health(int n, const control::NodeHealth& what) {
  checks_.take(n, what);
  // Before the first attempt the others are waited for: what they have in common is no news of each.
  if (stage_ != Stage::over && (state_.attempted() || stage_ != Stage::gathering)) record_checks();
  // The look that the program's word has started: what it finds is a sign of the node.
  const auto claim = state_.claims.find(name(n));
  if (claim == state_.claims.end() || lost(n)) return;
  const auto fault = fault_of_node(own_health(what, state_.shared_findings));
  if (fault && (attempt_.slot_of(n) < 0 || has_spare_for(n)))
    evict_by("failed check", n, fmt::format("{}; its check finds: {}", claim->second, *fault));
}

void Supervisor::record_checks() {
  for (auto& shared : checks_.news_of_all(roster_, state_.lost, state_.shared_findings))
    record(std::move(shared));
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()); ++n) {
    const bool placed = attempt_.slot_of(n) >= 0;
    const auto news = checks_.news_of(n, placed, state_.shared_findings);
    if (!news) continue;
    std::map<std::string, std::string> checks;
    for (const auto& finding : news->findings) checks[finding.check] = name_of(finding.fitness);
    record(events::SpareHealth{name(n), !placed, name_of(news->fitness), news->numerics, news->why,
                               std::move(checks)});
  }
}

// --- ranks ---

void Supervisor::rank_started(int node, const control::RankStarted& what) {
  if (!is_of_attempt(what.attempt, what.rank)) return;
  if (attempt_.has_on(what.rank, node)) return attempt_.started(what.rank);
  Failure failure;
  failure.kind = Failure::Kind::misplaced;
  failure.node = node;
  failure.rank = what.rank;
  failure.evidence = fmt::format("rank {} runs on {} and not on {}", what.rank, name(node),
                                 name(attempt_.node_of(what.rank)));
  suspect(failure);
}

void Supervisor::rank_failed(int node, const control::RankFailed& what) {
  if (is_of_attempt(what.attempt, what.rank))
    take_end({what.rank, node, what.exit_code, what.why, now_, true});
}

void Supervisor::rank_exited(int node, const control::RankExited& what) {
  if (!is_of_attempt(what.attempt, what.rank)) return;
  attempt_.ended(what.rank, what.status == 0);
  hangs_.ended(what.rank);
  if (what.status == 0) return;
  // Only the first one: when a node is lost, every other rank ends too, and each event waits for the disk.
  // And none once the run is over, which ends them all.
  if (!failures_.pending() && !signalled() && stage_ != Stage::over)
    record(events::RankExited{what.attempt, what.rank, name(node), what.status});
  take_end({what.rank, node, what.status, "", now_, facts_.promises.our_verdicts});
}

/// The exit code after a signal says little: some programs save and end with 0, others are ended by it. And
/// ranks that save alone take different times: none gets less time because another has ended.
void Supervisor::take_end(RankEnd end) {
  if (signalled()) return;
  // The others save, too; what they end with when the first have left says little.
  if (leaves_on_order() && !failures_.pending() &&
      (end.status == static_cast<int>(Exit::transient) || attempt_.others_ended(end.rank)))
    return;
  Failure failure;
  failure.kind = Failure::Kind::rank_exited;
  failure.node = end.node;
  failure.rank = end.rank;
  failure.status = end.status;
  failure.our_codes = end.our_codes;
  end.attempt = attempt();
  failures_.take_end(std::move(end));
  suspect(failure);
}

void Supervisor::suspect(const Failure& failure) {
  if (!state_.attempt_live() || signalled()) return;
  // The ranks did what they were told: save, and end.
  const bool asked =
      failure.kind == Failure::Kind::rank_exited && failure.status == static_cast<int>(Exit::transient);
  if (asked && stopping()) return report(Trigger::ended_to_stop);
  if (asked && !state_.evicting.empty())
    return report(Trigger::ended_to_leave, eviction(state_, roster_, ""));
  report(Trigger::rank_failed, failure);
}

void Supervisor::rank_finished(const control::RankFinished& what) {
  if (!is_of_attempt(what.attempt, what.rank) || !attempt_.finished(what.rank) || !what.state) return;
  record(
      events::FinalState{what.state->step, what.state->tokens, what.state->loss, what.state->state_digest});
}

void Supervisor::rank_heard(const control::RankHeard& what) {
  using What = control::RankHeard::What;
  if (!is_of_attempt(what.attempt, what.rank) || !state_.attempt_live()) return;
  if (what.what == What::sigterm) return attempt_.sent_sigterm(what.rank);
  const auto asked = state_.asked_of_ranks();
  const bool in_force =
      what.what == What::pause ? state_.paused : asked && asked->stop == (what.what == What::stop);
  const std::string order = control::name_of(what.what);
  if (in_force && !state_.heard.contains(order)) record(events::OrderHeard{what.attempt, what.rank, order});
}

void Supervisor::rank_waits(int node, const control::RankWaits& what) {
  if (what.attempt == attempt() && attempt_.has_on(what.rank, node)) slow_.waited(what.rank, what.waits);
}

void Supervisor::rank_restored(const control::RankRestored& what) {
  if (what.attempt != attempt() || what.rank != 0 || !state_.attempt_live() ||
      state_.attempts.back().restored)
    return;
  const auto& from = what.from;
  record(events::Restored{what.attempt, from.step, from.level, from.digest, from.note});
}

void Supervisor::rank_flight(int node, const control::RankFlight& what) {
  if (what.attempt == attempt() && attempt_.has_on(what.rank, node)) attempt_.flight(what, now_);
}

void Supervisor::rank_seen(int node, const control::RankSeen& what) {
  if (what.attempt == attempt() && attempt_.has_on(what.rank, node) && !attempt_.has_ended(what.rank))
    hangs_.seen(node, what, now_);
}

void Supervisor::stacks(int node, const control::Stacks& what) {
  if (what.attempt == attempt() && attempt_.has_on(what.rank, node)) hangs_.stacks(what.rank, what.text);
}

void Supervisor::rank_doubt(int, const control::RankDoubt& what) {
  if (what.attempt != attempt() || !state_.attempt_live() || !row_of(table_, stage_, Trigger::state_doubted))
    return;
  std::vector<int> nodes;
  for (const int rank : what.accused)
    if (attempt_.has(rank) && std::find(nodes.begin(), nodes.end(), attempt_.node_of(rank)) == nodes.end())
      nodes.push_back(attempt_.node_of(rank));
  Corruption found = judge(what, nodes, highest_step(), state_, roster_, limits_, facts_.promises);
  for (auto& event : found.events) record(std::move(event));
  failures_.decided();
  report(Trigger::state_doubted, found.failure);
}

void Supervisor::checkpoint_decided(const control::CommitOutcome& outcome, const std::string& note,
                                    double stalled_s) {
  if (outcome.durable)
    record(events::CheckpointDurable{outcome.attempt, outcome.step, note, stalled_s});
  else
    record(events::CheckpointDropped{outcome.attempt, outcome.step, note, stalled_s});
  if (outcome.durable && outcome.attempt == attempt()) attempt_.saved(outcome.step);
}

bool Supervisor::checkpoints_judged(const std::vector<std::pair<std::int64_t, std::string>>& damaged,
                                    bool left) {
  if (damaged.empty()) return true;
  if (left)
    for (const auto& [step, why] : damaged) record(events::CheckpointDamaged{attempt(), step, why});
  RestoreLadder::Facts facts = ladder_facts();
  if (!left) facts.durable_step = -1;
  if (stage_ == Stage::starting && ladder_.reopen(facts)) {
    enter(Stage::clearing);
    return false;
  }
  if (!left && stage_ != Stage::over)
    finish({static_cast<int>(Exit::no_requeue), "failed",
            "no checkpoint is left to begin from: " + damaged.front().second +
                ". To begin anew, choose another run.dir"});
  return left;
}

void Supervisor::checkpoints_removed(const std::vector<std::int64_t>& steps) {
  record(events::CheckpointsRemoved{attempt(), steps});
}

// --- orders ---

void Supervisor::drain(const control::Drain& asked) { ask_to_drain(asked, false); }

void Supervisor::ask_to_drain(const control::Drain& asked, bool for_good) {
  if (stage_ == Stage::over || state_.outcome) return;
  const bool known = state_.drain && (state_.drain->what.stop || !asked.stop);
  if (known && (!for_good || state_.drain->for_good)) return;
  record(events::Drain{attempt(), highest_step(), asked.stop, for_good, asked.reason});
  if (known) return;
  if (asked.stop && !worth_saving()) return report(Trigger::no_state_to_save);
  if (state_.attempt_live()) report(Trigger::orders_changed);
}

/// A sign evicts so many nodes. Another one that shows it is used last.
void Supervisor::evict_by(const std::string& sign, int n, const std::string& reason) {
  if (!evictions_spent(sign, name(n), state_, limits_)) return evict(n, reason, sign);
  if (!lost(n) && !state_.suspects.contains(name(n)) && !state_.evicting.contains(name(n)))
    record(events::NodeSuspected{name(n), reason + "; " + why_kept(sign, state_)});
}

/// Takes the node out: at once if it has no ranks, else when the ranks have saved. `sign`: "" by an order.
void Supervisor::evict(int n, const std::string& reason, const std::string& sign) {
  if (lost(n) || state_.evicting.contains(name(n)) || stage_ == Stage::over) return;
  if (attempt_.slot_of(n) < 0 || !state_.attempt_live())
    return record(events::NodeEvicted{name(n), reason, sign});
  record(events::EvictionOrdered{name(n), reason, attempt(), sign});
  if (stopping() || failures_.pending()) return;  // the next attempt does without the node anyway
  // Ranks that have no state yet have nothing to save, where that is known.
  const bool empty = attempt_.reports() && !state_.attempts.back().restored;
  report(empty ? Trigger::empty_node_leaves : Trigger::node_leaves, eviction(state_, roster_, ""));
}

OrderFacts Supervisor::facts_for(const control::Order& what) const {
  using Role = OrderFacts::Role;
  OrderFacts facts;
  facts.stage = state_.outcome ? Stage::over : stage_;
  facts.attempt_live = state_.attempt_live();
  facts.follows = attempt_.follows();
  facts.saves_on_sigterm = facts_.promises.saves_on_sigterm;
  facts.asked = state_.asked_of_ranks().has_value();
  facts.untaken = untaken(what.verb);
  // Ranks that have not loaded their state yet may find a newer one in the memory of their nodes.
  facts.saved = facts.attempt_live && state_.attempts.back().restored && state_.durable_step > 0 &&
                state_.durable_step >= highest_step();
  facts.paused = state_.paused;
  facts.stopping = stopping();
  facts.worth_saving = worth_saving();
  facts.durable_step = state_.durable_step;
  facts.drain_s = drain_s_;
  facts.node = what.node;
  const int n = roster_.node_called(what.node);
  facts.role = n < 0                                 ? Role::none
               : lost(n)                             ? Role::gone
               : state_.evicting.contains(what.node) ? Role::leaving
               : attempt_.slot_of(n) < 0             ? Role::spare
                                                     : Role::active;
  if (facts.role != Role::active) return facts;
  Failure leaves;
  leaves.kind = Failure::Kind::evicted;
  leaves.node = n;
  RunState without = without_unheard_nodes();
  without.lost.insert(what.node);
  const auto known = views();
  const Decision then =
      decide({roster_, limits_, facts_.shrinking, without, placement(), known, hours_left()}, leaves, false);
  facts.then = then.answer;
  facts.because = then.because;
  return facts;
}

bool Supervisor::untaken(control::Order::Verb verb) const {
  using Verb = control::Order::Verb;
  if (!state_.attempt_live() || !ranks_hear() || !attempt_.follows()) return false;
  const auto asked = state_.asked_of_ranks();
  switch (verb) {
    case Verb::save:
      return asked && !asked->stop && !state_.heard.contains("save");
    case Verb::stop:
      return asked && asked->stop && !state_.heard.contains("stop");
    case Verb::pause:
      return state_.hold_ranks() && !state_.heard.contains("pause");
    default:
      return false;
  }
}

control::OrderTaken Supervisor::order(const control::Order& what) {
  OrderAnswer answer = answer_to(what.verb, facts_for(what));
  const std::string by = what.by.empty() ? "an order" : "an order of " + what.by;
  switch (answer.deed) {
    case Deed::nothing:
      break;
    case Deed::list_nodes: {
      std::vector<ListedNode> nodes;
      for (const NodeView& view : views()) {
        const int n = static_cast<int>(nodes.size());
        nodes.push_back({view, checks_.newest(n, state_.shared_findings).why, nodes_.age_s(n, now_)});
        if (const int slot = attempt_.slot_of(n); slot >= 0 && state_.attempt_live())
          nodes.back().ranks = attempt_.progress_of(slot);
      }
      answer.says = node_list(roster_, state_, placement(), nodes);
      break;
    }
    case Deed::save:
    case Deed::stop:
      ask_to_drain({answer.deed == Deed::stop, by}, answer.deed == Deed::stop);
      break;
    case Deed::hold:
      record(events::Paused{attempt(), highest_step(), by});
      if (state_.attempt_live()) report(Trigger::orders_changed);
      break;
    case Deed::let_go:  // at any stage: else agents would hold the ranks of the next attempt
      record(events::Resumed{attempt(), highest_step(), by});
      actions_.push_back(PauseRanks{false});
      break;
    case Deed::evict:
      evict(roster_.node_called(what.node), by, "");
      break;
  }
  return {what.id, answer.taken, std::move(answer.says)};
}

}  // namespace holdfast::launcher

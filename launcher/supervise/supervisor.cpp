#include "launcher/supervise/supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::launcher {

const char* name_of(Stage stage) {
  switch (stage) {
    case Stage::gathering:
      return "gathering";
    case Stage::clearing:
      return "clearing";
    case Stage::starting:
      return "starting";
    case Stage::running:
      return "running";
    case Stage::over:
      return "over";
  }
  return "";
}

RunFacts run_facts_of(const config::RunConfig& resolved) { return {shrinking_of(resolved)}; }

Supervisor::Supervisor(Roster roster, config::Supervise limits, int drain_s, int term, RunState state,
                       double now, double unix_now, RunFacts facts)
    : roster_(std::move(roster)),
      limits_(limits),
      facts_(facts),
      drain_s_(drain_s),
      term_(term),
      state_(std::move(state)),
      now_(now),
      unix_offset_(unix_now - now),
      began_(now),
      stage_since_(now),
      nodes_(roster_.nodes.size()),
      placement_(roster_.first_placement),
      pace_(limits_, roster_.world()),
      stragglers_(limits_, roster_.world()),
      next_check_(now) {
  // The placement of the last attempt, if all of its nodes are in this allocation. A smaller placement is
  // kept only in the allocation that had lost nodes.
  if (!state_.attempts.empty() &&
      (state_.attempted() ? state_.attempts.back().placement.size() <= placement_.size()
                          : state_.attempts.back().placement.size() == placement_.size())) {
    std::vector<int> last;
    for (const auto& node : state_.attempts.back().placement) last.push_back(roster_.node_called(node));
    if (!last.empty() && std::find(last.begin(), last.end(), -1) == last.end()) placement_ = last;
  }
  ranks_.resize(world());
  pace_.recall(state_.pace);
}

void Supervisor::record(Event event) {
  LogEntry entry{{}, std::move(event)};
  entry.envelope.term = term_;
  entry.envelope.unix = now_ + unix_offset_;
  apply(state_, entry);
  actions_.push_back(Record{std::move(entry)});
}

std::vector<Action> Supervisor::take_actions() { return std::exchange(actions_, {}); }

int Supervisor::slot_of(int node) const {
  const auto it = std::find(placement_.begin(), placement_.end(), node);
  return it == placement_.end() ? -1 : static_cast<int>(it - placement_.begin());
}

/// Counts agents heard within half of the silence after which a node is lost: of nodes that are cut off
/// together, none must be declared lost while the others still count as reached because their last heartbeats
/// came a little later. After a suspension of this process no agent has been heard yet.
bool Supervisor::majority() const {
  if (now_ - resumed_at_ < 0.5e-3 * limits_.node_silence_ms) return false;
  int voters = 0, reached = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (lost(static_cast<int>(n))) continue;
    ++voters;
    reached += nodes_[n].last_beat >= 0 && tick_at_ - nodes_[n].last_beat <= 0.5e-3 * limits_.node_silence_ms;
  }
  return 2 * reached >= voters;
}

bool Supervisor::fresh(int n) const {
  const auto& node = nodes_[n];
  return node.connected && node.last_beat >= 0 && now_ - node.last_beat <= 3e-3 * limits_.heartbeat_ms;
}

std::int64_t Supervisor::highest_step() const {
  std::int64_t highest =
      state_.attempt_live() && state_.attempts.back().restored ? state_.attempts.back().restored->step : 0;
  for (const auto& rank : ranks_) highest = std::max(highest, rank.step);
  return highest;
}

// --- reports of agents and ranks (time-outs are in supervisor_stages.cpp) ---

void Supervisor::agent_here(int n, const control::Beat& beat) {
  auto& node = nodes_[n];
  node.connected = true;
  node.last_beat = now_;
  node.attempt = beat.attempt;
  take_progress(beat, n);
}

void Supervisor::agent_gone(int n) { nodes_[n].connected = false; }
void Supervisor::agent_unreached(int n, const std::string& why) { nodes_[n].unreached = why; }
void Supervisor::kernel_answered(int n, double at) { nodes_[n].kernel_answered = at; }

void Supervisor::take_progress(const control::Beat& beat, int node) {
  if (beat.attempt != attempt()) return;
  for (const auto& seen : beat.ranks) {
    if (seen.attempt != attempt() || seen.rank < 0 || seen.rank >= world() || node_of_rank(seen.rank) != node)
      continue;
    auto& rank = ranks_[seen.rank];
    if (rank.step >= 0 && seen.step < 0 && seen.phase == control::Phase::starting) {
      rank.seen_at = now_;  // its agent was replaced and has not heard from it yet: no progress
      continue;
    }
    if (seen.step > rank.step || seen.phase == control::Phase::paused) {
      if (seen.step > rank.step && rank.step >= 0 && stage_ == Stage::running)
        pace_.stepped(now_ - rank.stepped_at);
      rank.stepped_at = now_;
    }
    if (!rank.started || rank.step != seen.step || rank.phase != seen.phase || rank.moves != seen.moves) {
      if (rank.started && stage_ == Stage::running) pace_.left(rank.phase, now_ - rank.moved_at);
      rank.moved_at = now_;
    }
    if (seen.compute_us > 0)
      stragglers_.computed(seen.rank, seen.step, 1e-6 * static_cast<double>(seen.compute_us));
    rank.started = true;
    rank.step = std::max(rank.step, seen.step);
    rank.phase = seen.phase;
    rank.moves = seen.moves;
    rank.seen_at = now_;
    rank.reported =
        rank.reported || seen.step >= 0 || seen.phase != control::Phase::starting || seen.moves > 0;
    ranks_came_to(rank.step);
  }
  if (stage_ == Stage::gathering || stepped_ || !state_.attempt_live()) return;
  auto& live = state_.attempts.back();
  if (!live.restored || ranks_.front().step <= live.restored->step) return;
  stepped_ = true;
  record(events::FirstStep{live.number, ranks_.front().step});
}

/// A step needs all ranks, and each of them began it after the step before was done somewhere. What a
/// heartbeat says may be as old as the time between two.
void Supervisor::ranks_came_to(std::int64_t step) {
  if (!facts_.own_trainer || step <= newest_step_) return;
  if (newest_step_ >= 0) all_took_part_ = newest_step_at_ - 1e-3 * limits_.heartbeat_ms;
  newest_step_ = step;
  newest_step_at_ = now_;
}

void Supervisor::cleared(int n, int attempt) {
  auto& node = nodes_[n];
  node.cleared = std::max(node.cleared, attempt);
  if (!lost(n) || node.cleared < this->attempt() || stage_ == Stage::over) return;
  const auto failures = state_.failures.find(name(n));
  if (state_.evicted.contains(name(n)) ||
      (failures != state_.failures.end() && failures->second >= limits_.max_node_failures))
    return;
  record(events::NodeReturned{
      name(n),
      "its agent answers and has ended its old ranks: the node is a spare again, used after all others"});
}

void Supervisor::rank_started(int node, const control::RankStarted& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= world()) return;
  if (node_of_rank(what.rank) != node) {
    Failure failure;
    failure.kind = Failure::Kind::misplaced;
    failure.node = node;
    failure.rank = what.rank;
    failure.evidence =
        fmt::format("rank {} runs on {} and not on {}", what.rank, name(node), name(node_of_rank(what.rank)));
    suspect_failure(std::move(failure));
    return;
  }
  ranks_[what.rank].started = true;
}

void Supervisor::rank_failed(int node, const control::RankFailed& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= world()) return;
  take_end({what.rank, node, what.exit_code, what.why, now_});
}

void Supervisor::rank_exited(int node, const control::RankExited& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= world()) return;
  auto& rank = ranks_[what.rank];
  rank.ended = true;
  if (what.status == 0) {
    rank.exited_well = true;
    return;
  }
  // Only the first one: when a node is lost, every other rank ends too, and each event waits for the disk.
  if (!pending_ && !signalled()) record(events::RankExited{what.attempt, what.rank, name(node), what.status});
  take_end({what.rank, node, what.status, "", now_});
}

void Supervisor::rank_finished(const control::RankFinished& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= world()) return;
  auto& rank = ranks_[what.rank];
  if (std::exchange(rank.finished, true) || !what.state) return;
  const auto& state = *what.state;
  record(events::FinalState{state.step, state.tokens, state.loss, state.state_digest});
}

void Supervisor::rank_restored(const control::RankRestored& what) {
  if (what.attempt != attempt() || what.rank != 0 || !state_.attempt_live() ||
      state_.attempts.back().restored)
    return;
  const auto& from = what.from;
  record(events::Restored{what.attempt, from.step, from.level, from.digest, from.note});
}

void Supervisor::rank_flight(int node, const control::RankFlight& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= world() || node_of_rank(what.rank) != node)
    return;
  auto& rank = ranks_[what.rank];
  rank.flight = what;
  rank.flight_at = now_;
}

void Supervisor::checkpoint_decided(const control::CommitOutcome& outcome, const std::string& note) {
  if (outcome.durable)
    record(events::CheckpointDurable{outcome.attempt, outcome.step, note});
  else
    record(events::CheckpointDropped{outcome.attempt, outcome.step, note});
  if (!outcome.durable || outcome.attempt != attempt()) return;
  // A vote shows that its rank has done this step, and may arrive before the heartbeat that says so.
  for (auto& rank : ranks_) rank.step = std::max(rank.step, outcome.step);
}

void Supervisor::checkpoints_removed(const std::vector<std::int64_t>& steps) {
  record(events::CheckpointsRemoved{attempt(), steps});
}

/// Keeps how it ended, for the diagnosis when there is nothing more to wait for (diagnosed()).
void Supervisor::take_end(RankEnd end) {
  const auto same =
      std::find_if(ends_.begin(), ends_.end(), [&](const RankEnd& e) { return e.rank == end.rank; });
  if (same == ends_.end()) ends_.push_back(end);
  Failure failure;
  failure.kind = Failure::Kind::rank_exited;
  failure.node = end.node;
  failure.rank = end.rank;
  failure.status = end.status;
  suspect_failure(std::move(failure));
}

/// The failure waits a moment, because the end of a rank may be the first effect of the loss of its node.
void Supervisor::suspect_failure(Failure failure) {
  const bool watching = stage_ == Stage::starting || stage_ == Stage::running ||
                        (stage_ == Stage::gathering && state_.attempt_live());
  if (!watching || signalled()) return;  // check_signalled() handles ranks that got a signal
  const bool asked =
      failure.kind == Failure::Kind::rank_exited && failure.status == static_cast<int>(Exit::transient);
  // The ranks did what they were told: save, and end.
  if (asked && stopping()) return finish(drained());
  if (asked && !state_.evicting.empty()) return fail(eviction(""));
  if (pending_) return;
  pending_since_ = now_;
  pending_ = std::move(failure);
}

}  // namespace holdfast::launcher

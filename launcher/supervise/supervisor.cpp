#include "launcher/supervise/supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

std::string in_words(int status) {
  if (status < 0) return "vanished";
  return status > 128 ? fmt::format("was ended by signal {}", status - 128)
                      : fmt::format("ended with exit code {}", status);
}

}  // namespace

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

Supervisor::Supervisor(Roster roster, config::Supervise limits, int drain_s, bool through_mpirun, int epoch,
                       RunState state, double now, double unix_now)
    : roster_(std::move(roster)),
      limits_(limits),
      drain_s_(drain_s),
      through_mpirun_(through_mpirun),
      epoch_(epoch),
      state_(std::move(state)),
      now_(now),
      unix_offset_(unix_now - now),
      began_(now),
      stage_since_(now),
      nodes_(roster_.nodes.size()),
      ranks_(static_cast<std::size_t>(roster_.world())) {
  placement_ = roster_.first_placement;
  if (!state_.attempts.empty() && state_.attempts.back().placement.size() == placement_.size()) {
    // The placement of the last attempt, if it was made of nodes that we still have.
    std::vector<int> last;
    for (const auto& node : state_.attempts.back().placement) last.push_back(roster_.node_called(node));
    if (std::find(last.begin(), last.end(), -1) == last.end()) placement_ = last;
  }
}

void Supervisor::record(json event) {
  event["unix"] = now_ + unix_offset_;
  apply_event(state_, event);
  actions_.push_back(Record{std::move(event)});
}

std::vector<Action> Supervisor::take_actions() { return std::exchange(actions_, {}); }

int Supervisor::slot_of(int node) const {
  const auto it = std::find(placement_.begin(), placement_.end(), node);
  return it == placement_.end() ? -1 : static_cast<int>(it - placement_.begin());
}

/// Heard within half of the silence that ends a node: of nodes that are cut off together, none must be named
/// dead while the others still count as reached, just because their last beats came a little later.
bool Supervisor::majority() const {
  int voters = 0, reached = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (lost(static_cast<int>(n))) continue;
    ++voters;
    reached += nodes_[n].last_beat >= 0 && tick_at_ - nodes_[n].last_beat <= 0.5e-3 * limits_.node_silence_ms;
  }
  return 2 * reached >= voters;
}

bool Supervisor::fresh(int n) const {
  const auto& node = nodes_[static_cast<std::size_t>(n)];
  return node.connected && node.last_beat >= 0 && now_ - node.last_beat <= 3e-3 * limits_.heartbeat_ms;
}

std::int64_t Supervisor::highest_step() const {
  std::int64_t highest =
      state_.attempt_live() && state_.attempts.back().restored ? state_.attempts.back().restored->step : 0;
  for (const auto& rank : ranks_) highest = std::max(highest, rank.step);
  return highest;
}

// --- what happened ---  (what time brings is in supervisor_stages.cpp)

void Supervisor::agent_here(int n, const control::Beat& beat) {
  auto& node = nodes_[static_cast<std::size_t>(n)];
  node.connected = true, node.last_beat = now_, node.mpirun = beat.mpirun, node.attempt = beat.attempt;
  take_progress(beat, n);
}

void Supervisor::agent_gone(int n) { nodes_[static_cast<std::size_t>(n)].connected = false; }

void Supervisor::take_progress(const control::Beat& beat, int node) {
  if (beat.attempt != attempt()) return;
  for (const auto& seen : beat.ranks) {
    if (seen.attempt != attempt() || seen.rank < 0 || seen.rank >= roster_.world() ||
        node_of_rank(seen.rank) != node)
      continue;
    auto& rank = ranks_[static_cast<std::size_t>(seen.rank)];
    if (!rank.started || rank.step != seen.step || rank.phase != seen.phase) rank.moved_at = now_;
    rank.started = true, rank.step = std::max(rank.step, seen.step), rank.phase = seen.phase,
    rank.seen_at = now_;
  }
  if (stage_ == Stage::gathering || stepped_ || !state_.attempt_live()) return;
  auto& live = state_.attempts.back();
  if (!live.restored || ranks_.front().step <= live.restored->step) return;
  stepped_ = true;
  record({{"event", "first_step"}, {"attempt", live.number}, {"step", ranks_.front().step}});
}

void Supervisor::cleared(int n, int attempt) {
  auto& node = nodes_[static_cast<std::size_t>(n)];
  node.cleared = std::max(node.cleared, attempt);
  if (lost(n) && node.cleared >= this->attempt() && stage_ != Stage::over)
    record({{"event", "node_returned"},
            {"node", name(n)},
            {"evidence", "its agent answers and has ended what it ran"}});
}

void Supervisor::rank_started(int node, const control::RankStarted& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= roster_.world()) return;
  if (node_of_rank(what.rank) != node) {
    suspect_failure({Failure::Kind::misplaced, node, what.rank, 0,
                     fmt::format("rank {} runs on {} and not on {}", what.rank, name(node),
                                 name(node_of_rank(what.rank)))});
    return;
  }
  ranks_[static_cast<std::size_t>(what.rank)].started = true;
}

void Supervisor::rank_failed(int node, const control::RankFailed& what) {
  if (what.attempt != attempt()) return;
  suspect_failure({Failure::Kind::rank_exited, node, what.rank, what.exit_code,
                   fmt::format("rank {} on {}: {}", what.rank, name(node), what.why)});
}

void Supervisor::rank_exited(int node, const control::RankExited& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= roster_.world()) return;
  if (what.status == 0) {
    ranks_[static_cast<std::size_t>(what.rank)].exited_well = true;
    return;
  }
  // One line, not a thousand: when a node goes, every other rank ends too, and each line waits for the disk.
  if (!pending_)
    record({{"event", "rank_exited"},
            {"attempt", what.attempt},
            {"rank", what.rank},
            {"node", name(node)},
            {"status", what.status}});
  suspect_failure({Failure::Kind::rank_exited, node, what.rank, what.status,
                   fmt::format("rank {} on {} {}", what.rank, name(node), in_words(what.status))});
}

void Supervisor::rank_finished(const control::RankFinished& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= roster_.world()) return;
  auto& rank = ranks_[static_cast<std::size_t>(what.rank)];
  if (std::exchange(rank.finished, true) || !what.state) return;
  record({{"event", "final_state"},
          {"step", what.state->step},
          {"tokens", what.state->tokens},
          {"loss", what.state->loss},
          {"state_digest", what.state->state_digest}});
}

void Supervisor::rank_restored(const control::RankRestored& what) {
  if (what.attempt != attempt() || what.rank != 0 || !state_.attempt_live() ||
      state_.attempts.back().restored)
    return;
  record({{"event", "restored"},
          {"attempt", what.attempt},
          {"step", what.from.step},
          {"level", what.from.level},
          {"digest", what.from.digest},
          {"note", what.from.note}});
}

void Supervisor::rank_flight(int node, const control::RankFlight& what) {
  if (what.attempt != attempt() || what.rank < 0 || what.rank >= roster_.world() ||
      node_of_rank(what.rank) != node)
    return;
  auto& rank = ranks_[static_cast<std::size_t>(what.rank)];
  rank.flight = what, rank.flight_at = now_;
}

void Supervisor::mpirun_exited(int node, const control::MpirunExited& what) {
  if (what.attempt != attempt() || what.status == 0) return;
  suspect_failure({Failure::Kind::mpirun_ended, node, -1, what.status,
                   fmt::format("mpirun on {} {}", name(node), in_words(what.status))});
}

void Supervisor::checkpoint_decided(const control::Verdict& verdict, const std::string& note) {
  record({{"event", verdict.durable ? "checkpoint_durable" : "checkpoint_dropped"},
          {"attempt", verdict.attempt},
          {"step", verdict.step},
          {"note", note}});
  if (!verdict.durable || verdict.attempt != attempt()) return;
  // A vote says that its rank has come so far, and may overtake the beat that says so.
  for (auto& rank : ranks_) rank.step = std::max(rank.step, verdict.step);
}

/// The first sign counts; it waits a moment, because what looks like a rank's end may be the first sign of a
/// node's. A rank's own end explains mpirun's, whichever was heard of first.
void Supervisor::suspect_failure(Failure failure) {
  const bool watching = stage_ == Stage::starting || stage_ == Stage::running ||
                        (stage_ == Stage::gathering && state_.attempt_live());
  if (!watching) return;
  // What they were told to do: save, and end.
  if (stopping() && failure.kind == Failure::Kind::rank_exited &&
      failure.status == static_cast<int>(Exit::transient))
    return finish(drained());
  if (!pending_)
    pending_since_ = now_;
  else if (pending_->kind != Failure::Kind::mpirun_ended || failure.kind == Failure::Kind::mpirun_ended)
    return;
  pending_ = std::move(failure);
}

}  // namespace holdfast::launcher

// The supervisor's clock: what each stage waits for, who has been silent for too long, and what follows from
// it. What it is told of (agents, ranks, mpirun) is in supervisor.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/supervise/hang.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr double clear_limit_s = 15;  // an agent that cannot end its old ranks in this time is no good
constexpr double minority_limit_s =
    120;  // alone for so long: let the others, or SLURM, go on without this leader
constexpr double forgotten_s =
    15;  // an agent that was replaced knows its ranks again by then, or they are gone
constexpr double flight_life_s = 3;  // of a report that comes every second
constexpr double stopped_gap_s =
    1;  // between two ticks: this very process was stopped, and heard nobody meanwhile

}  // namespace

void Supervisor::tick() {
  if (tick_at_ >= 0 && now_ - tick_at_ > stopped_gap_s) forgive(now_ - tick_at_);
  tick_at_ = now_;
  if (stage_ == Stage::over) return;
  if (stopping() && now_ + unix_offset_ >= state_.drain->at + drain_s_) return finish(drained());
  if (majority()) {
    minority_since_ = -1;
    lose_silent_nodes();
  } else {
    if (minority_since_ < 0) minority_since_ = now_;
    if (stage_ != Stage::gathering && now_ - minority_since_ > minority_limit_s) {
      stage_ = Stage::over;
      actions_.push_back(Resign{"fewer than half of the agents answer"});
      return;
    }
  }
  switch (stage_) {
    case Stage::gathering:
      return check_gathering();
    case Stage::clearing:
      return check_clearing();
    case Stage::starting:
      return check_starting();
    case Stage::running:
      return check_running();
    case Stage::over:
      return;
  }
}

/// What was said while this process was stopped has not been read yet: no patience runs out in that time.
void Supervisor::forgive(double gap_s) {
  for (auto& node : nodes_) node.last_beat = node.last_beat < 0 ? node.last_beat : now_;
  for (auto& rank : ranks_) rank.moved_at += gap_s, rank.seen_at += gap_s, rank.flight_at += gap_s;
  for (double* since : {&began_, &stage_since_, &pending_since_}) *since += gap_s;
  if (minority_since_ >= 0) minority_since_ += gap_s;
}

void Supervisor::lose_silent_nodes() {
  for (int n = 0; n < static_cast<int>(nodes_.size()) && stage_ != Stage::over; ++n) {
    const auto& node = nodes_[static_cast<std::size_t>(n)];
    if (lost(n)) continue;
    if (node.last_beat >= 0) {
      const double silent = now_ - node.last_beat;
      if (silent > limits_.node_silence_ms * 1e-3)
        lose(n, silent, fmt::format("no heartbeat of {} for {:.1f} s", name(n), silent));
    } else {
      // Never heard under this leader: at the first start agents may be slow to come, after a takeover they
      // are there or not.
      const double patience = state_.attempt_live() && stage_ == Stage::gathering
                                  ? 2e-3 * limits_.node_silence_ms
                                  : limits_.start_s;
      if (now_ - began_ > patience)
        lose(n, now_ - began_,
             fmt::format("no agent has answered on {} for {:.1f} s", name(n), now_ - began_));
    }
  }
}

void Supervisor::lose(int n, double silent_s, const std::string& evidence) {
  const bool hosts_mpirun = through_mpirun_ && nodes_[static_cast<std::size_t>(n)].mpirun &&
                            nodes_[static_cast<std::size_t>(n)].attempt == attempt();
  const int slot = slot_of(n);
  record({{"event", "node_lost"},
          {"node", name(n)},
          {"slot", slot < 0 ? json(nullptr) : json(slot)},
          {"silent_s", silent_s},
          {"evidence", evidence}});
  nodes_[static_cast<std::size_t>(n)].last_beat = -1;
  nodes_[static_cast<std::size_t>(n)].cleared = 0;
  // Without its script the job lives only until SLURM looks: whatever the local levels hold goes with it.
  if (n == roster_.batch_host) drain({false, "the batch host was lost"});
  if (stage_ == Stage::gathering || (slot < 0 && !hosts_mpirun)) return;
  fail({slot < 0 ? Failure::Kind::node_idle_lost : Failure::Kind::node_lost, n, -1, 0, evidence, silent_s});
}

void Supervisor::check_gathering() {
  if (state_.verdict) {  // the last leader wrote the end but did not live to tell it
    stage_ = Stage::over;
    actions_.push_back(FinishRun{state_.verdict->exit_code});
    return;
  }
  for (const int n : placement_)
    if (!lost(n) && !nodes_[static_cast<std::size_t>(n)].connected) return;
  if (try_adopt()) return;
  if (state_.attempt_live()) {
    // Ranks that are only now coming back to a restarted agent deserve the wait.
    if (now_ - stage_since_ < 2e-3 * limits_.node_silence_ms) return;
    if (pending_ && !lost_is_placed()) return fail(*pending_);
    fail({Failure::Kind::leader_changed, -1, -1, 0, "the attempt is not whole under the new leader"});
    return;
  }
  plan_first();
}

bool Supervisor::try_adopt() {
  // Nobody would ever notice the end of a node that is already named lost.
  if (!state_.attempt_live() || lost_is_placed()) return false;
  bool mpirun_lives = !through_mpirun_;
  for (const auto& node : nodes_)
    mpirun_lives = mpirun_lives || (node.connected && node.mpirun && node.attempt == attempt());
  const bool whole =
      std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.started || r.exited_well; });
  const bool done = std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.exited_well; });
  if (!whole || !(mpirun_lives || done)) return false;
  record({{"event", "attempt_adopted"}, {"attempt", attempt()}, {"step", highest_step()}});
  stepped_ = state_.attempts.back().first_step_at.has_value();
  stage_ = Stage::running, stage_since_ = now_;
  for (auto& rank : ranks_) rank.moved_at = rank.seen_at = now_;
  return true;
}

void Supervisor::plan_first() {
  Decision decision;
  auto filled = fill(roster_, with_doubts(), placement_, decision);
  if (!filled)
    filled = fill(roster_, state_, placement_, decision);  // at the start, agents may be on their way
  if (!filled)
    return finish({static_cast<int>(Exit::out_of_spares), "out_of_spares",
                   "more nodes are lost than there are spares", 0});
  begin_attempt(*filled);
}

/// The state for the choice of a spare: one that has not been heard of is none, one that is late comes last.
/// A unit's switch takes a node and the spare beside it together, and the spare's silence may be the shorter
/// by one heartbeat.
RunState Supervisor::with_doubts() const {
  RunState state = state_;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    if (nodes_[static_cast<std::size_t>(n)].last_beat < 0) state.lost.insert(name(n));
    if (!fresh(n)) state.suspects.insert(name(n));
  }
  return state;
}

void Supervisor::begin_attempt(std::vector<int> placement) {
  placement_ = std::move(placement);
  std::vector<std::string> names;
  for (const int n : placement_) names.push_back(name(n));
  record({{"event", "attempt_planned"}, {"attempt", attempt() + 1}, {"epoch", epoch_}, {"placement", names}});
  ranks_.assign(ranks_.size(), RankNow{});
  pending_.reset();
  stepped_ = false;
  stage_ = Stage::clearing, stage_since_ = now_;
  actions_.push_back(ClearAll{attempt()});
}

void Supervisor::check_clearing() {
  for (const int n : placement_) {
    if (nodes_[static_cast<std::size_t>(n)].cleared >= attempt()) continue;
    if (now_ - stage_since_ > clear_limit_s && majority())
      lose(n, now_ - stage_since_,
           fmt::format("{} could not end its old ranks within {} s", name(n), clear_limit_s));
    return;
  }
  record({{"event", "attempt_started"}, {"attempt", attempt()}});
  stage_ = Stage::starting, stage_since_ = now_;
  actions_.push_back(Launch{attempt(), placement_});
  tell_ranks();
}

void Supervisor::check_starting() {
  if (pending_) return check_running();
  int missing = -1, missing_count = 0;
  bool one_node = true;
  for (int r = 0; r < roster_.world(); ++r) {
    if (ranks_[static_cast<std::size_t>(r)].started) continue;
    if (missing < 0) missing = r;
    one_node = one_node && node_of_rank(r) == node_of_rank(missing);
    ++missing_count;
  }
  if (missing < 0) {
    record({{"event", "placement_verified"}, {"attempt", attempt()}, {"ranks", roster_.world()}});
    stage_ = Stage::running, stage_since_ = now_;
    for (auto& rank : ranks_) rank.moved_at = rank.seen_at = now_;
    return;
  }
  if (now_ - stage_since_ <= limits_.start_s) return;
  // Somebody in particular is to blame only when the others came up.
  const bool blame = one_node && roster_.slots() > 1;
  fail({Failure::Kind::start_failed, blame ? node_of_rank(missing) : -1, missing, 0,
        fmt::format("{} of {} ranks did not start within {} s, the first is rank {} on {}", missing_count,
                    roster_.world(), limits_.start_s, missing, name(node_of_rank(missing))),
        now_ - stage_since_});
}

void Supervisor::check_running() {
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.exited_well; })) {
    record({{"event", "attempt_ended"},
            {"attempt", attempt()},
            {"cause", "finished"},
            {"step", state_.final_state ? state_.final_state->step : highest_step()}});
    return finish({0, "done", "", 0});
  }
  if (pending_) {
    const double beat_s = limits_.heartbeat_ms * 1e-3;
    if (now_ - pending_since_ < 2.5 * beat_s) return;
    for (const int n : placement_)
      if (!fresh(n)) return;  // silence will decide within node_silence_ms
    return fail(*pending_);
  }
  for (int r = 0; r < roster_.world(); ++r) {
    const auto& rank = ranks_[static_cast<std::size_t>(r)];
    const int node = node_of_rank(r);
    if (!rank.exited_well && fresh(node) && now_ - rank.seen_at > forgotten_s)
      return suspect_failure({Failure::Kind::rank_exited, node, r, -1,
                              fmt::format("rank {} on {} vanished: its agent has not named it for {} s", r,
                                          name(node), forgotten_s)});
  }
  check_hang();
}

/// Nobody moves: somebody in particular holds the rest up.
void Supervisor::check_hang() {
  const auto trains = [](const RankNow& r) {
    return (r.step >= 0 || r.phase != control::Phase::starting) && !r.finished && !r.exited_well;
  };
  if (std::none_of(ranks_.begin(), ranks_.end(),
                   [&](const RankNow& r) { return trains(r) && now_ - r.moved_at > limits_.step_s; }))
    return;
  std::vector<StillRank> still;
  for (int r = 0; r < roster_.world(); ++r) {
    const auto& rank = ranks_[static_cast<std::size_t>(r)];
    if (!trains(rank)) continue;
    // Agents report once a second while nobody moves; an older report tells of an earlier delay.
    const bool current = rank.flight && now_ - rank.flight_at <= flight_life_s;
    still.push_back({r, rank.step, rank.phase, now_ - rank.moved_at, current ? &*rank.flight : nullptr});
  }
  const Culprit culprit = who_hangs(still, limits_.step_s);
  const int node = node_of_rank(culprit.rank);
  fail({Failure::Kind::rank_hung, node, culprit.rank, 0,
        culprit.why.empty() ? fmt::format("rank {} on {} has shown no progress for {} s", culprit.rank,
                                          name(node), limits_.step_s)
                            : fmt::format("rank {} on {} holds up the others for {} s: {}", culprit.rank,
                                          name(node), limits_.step_s, culprit.why),
        now_ - ranks_[static_cast<std::size_t>(culprit.rank)].moved_at});
}

void Supervisor::fail(Failure failure) {
  const bool healthy = failure.kind != Failure::Kind::node_lost &&
                       failure.kind != Failure::Kind::node_idle_lost &&
                       failure.kind != Failure::Kind::leader_changed;
  const double detected = healthy && pending_ ? now_ - pending_since_ : failure.silent_s;
  record({{"event", "attempt_ended"},
          {"attempt", attempt()},
          {"cause", name_of(failure.kind)},
          {"node", failure.node < 0 ? "" : name(failure.node)},
          {"rank", failure.rank},
          {"step", highest_step()},
          {"healthy", healthy},
          {"detected_s", detected},
          {"evidence", failure.evidence}});
  pending_.reset();
  if (failure.kind == Failure::Kind::start_failed && failure.node >= 0)
    record({{"event", "node_suspected"}, {"node", name(failure.node)}, {"evidence", failure.evidence}});
  if (stopping() && !worth_saving()) return finish(drained());
  Decision decision = decide(roster_, limits_, with_doubts(), placement_, failure);
  // The next job gets other nodes.
  if (stopping() && decision.stop && decision.stop->exit_code == static_cast<int>(Exit::out_of_spares))
    decision.stop = drained();
  if (decision.stop) return finish(*decision.stop);
  if (decision.promoted >= 0)
    record({{"event", "spare_promoted"},
            {"slot", decision.slot},
            {"from", name(placement_[static_cast<std::size_t>(decision.slot)])},
            {"to", name(decision.promoted)},
            {"unit", roster_.nodes[static_cast<std::size_t>(decision.promoted)].unit}});
  begin_attempt(std::move(decision.placement));
}

void Supervisor::finish(RunState::Verdict verdict) {
  if (state_.attempt_live())
    record({{"event", "attempt_ended"},
            {"attempt", attempt()},
            {"cause", verdict.status},
            {"step", highest_step()}});
  record({{"event", "run_finished"},
          {"exit_code", verdict.exit_code},
          {"status", verdict.status},
          {"why", verdict.why}});
  stage_ = Stage::over;
  actions_.push_back(FinishRun{verdict.exit_code});
}

}  // namespace holdfast::launcher

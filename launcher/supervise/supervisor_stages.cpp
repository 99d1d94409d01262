// What happens with time: what each stage waits for, which nodes have been silent for too long, and the
// consequences. Reports of agents and ranks are in supervisor.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

// An agent that cannot end its old ranks in this time is lost.
constexpr double clear_limit_s = 15;
// A leader without a majority for so long resigns: other agents, or SLURM, may go on without it.
constexpr double minority_limit_s = 120;
// An agent that was replaced knows its ranks again after this time, or they are gone.
constexpr double unnamed_limit_s = 15;
// Messages of a node that died may still arrive so long after others have noticed its end.
constexpr double in_flight_s = 0.02;
// After such a gap between two ticks this process was suspended, and has read no messages meanwhile.
constexpr double suspended_gap_s = 1;

}  // namespace

void Supervisor::tick() {
  if (tick_at_ >= 0 && now_ - tick_at_ > suspended_gap_s) extend_deadlines(now_ - tick_at_);
  tick_at_ = now_;
  if (stage_ == Stage::over) return;
  if (stopping() && now_ + unix_offset_ >= state_.drain->at + drain_s_) return finish(drained());
  check_eviction();
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
  check_spares();
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

void Supervisor::ordered() {
  if (std::exchange(order_waits_, false)) stage_since_ = now_;
}

/// Agents send heartbeats several times a second, the own one too. If none at all came for so long, this
/// process was suspended, and the messages of that time have not been read yet.
void Supervisor::at(double now) {
  const double gap_s = now - now_;
  now_ = now;
  if (gap_s <= suspended_gap_s) return;
  resumed_at_ = now;
  for (auto& node : nodes_) {
    if (node.last_beat >= 0) node.last_beat += gap_s;
    if (node.heard_before) *node.heard_before += gap_s;
  }
}

void Supervisor::last_leader_heard(int node, double at) { nodes_[node].heard_before = at; }

/// Messages that came while this process was suspended have not been read yet: that time counts for no
/// deadline.
void Supervisor::extend_deadlines(double gap_s) {
  const auto later = [&](double& since) { since = std::min(since + gap_s, now_); };  // not into the future
  for (auto& rank : ranks_) {
    later(rank.moved_at), later(rank.stepped_at);
    later(rank.seen_at), later(rank.flight_at);
  }
  later(began_), later(stage_since_), later(pending_since_);
  if (hang_) later(hang_->since);
  if (minority_since_ >= 0) later(minority_since_);
}

/// When a switch fails, many nodes are lost at once. All of them are recorded before anything is decided, so
/// that they end one attempt only and no slot goes to a node that is lost too.
void Supervisor::lose_silent_nodes() {
  std::optional<Failure> first;
  const auto silent_node = [&](int n, double silent_s, const std::string& evidence) {
    auto failure = name_lost(n, silent_s, evidence);
    if (!first) first = std::move(failure);
  };
  for (int n = 0; n < static_cast<int>(nodes_.size()) && stage_ != Stage::over; ++n) {
    const auto& node = nodes_[n];
    if (lost(n)) continue;
    const LifeSigns signs = signs_of(n);
    const double silent = now_ - signs.agent;
    if (node.last_beat >= 0) {
      if (is_lost(signs, now_, 1e-3 * limits_.node_silence_ms))
        silent_node(n, silent,
                    fmt::format("no heartbeat of {} for {:.1f} s{}", name(n), silent, says_of(signs, now_)));
    } else {
      // Never heard in this term: at the first start agents may be slow, after a takeover they run already.
      // The silence of the leader before began in its term; its agent has two heartbeats to answer in this
      // one.
      const bool took_over = state_.attempted() && state_.job_term != term_;
      const double patience = took_over ? 1e-3 * limits_.node_silence_ms : limits_.start_s;
      if (is_lost(signs, now_, patience) && now_ - began_ > 2e-3 * limits_.heartbeat_ms)
        silent_node(n, silent,
                    fmt::format("no agent has answered on {} for {:.1f} s{}{}", name(n), silent,
                                node.unreached.empty() ? "" : ": " + node.unreached, says_of(signs, now_)));
    }
  }
  if (first) fail(std::move(*first));
}

/// When ranks fail, the kernel of a silent node does not speak for it: the others may have noticed its end.
LifeSigns Supervisor::signs_of(int n) const {
  const auto& node = nodes_[n];
  LifeSigns signs;
  signs.agent = node.last_beat >= 0 ? node.last_beat : node.heard_before.value_or(began_);
  if (slot_of(n) >= 0) signs.ranks = all_took_part_;
  if (!pending_) signs.kernel = node.kernel_answered;
  return signs;
}

void Supervisor::lose(int n, double silent_s, const std::string& evidence) {
  if (auto failure = name_lost(n, silent_s, evidence)) fail(std::move(*failure));
}

/// Records the loss. Returns the failure of the attempt; nothing when the attempt goes on.
std::optional<Failure> Supervisor::name_lost(int n, double silent_s, const std::string& evidence) {
  const int slot = slot_of(n);
  record(events::NodeLost{name(n), slot < 0 ? std::nullopt : std::optional(slot), silent_s, evidence});
  nodes_[n].last_beat = -1;
  nodes_[n].kernel_answered = LifeSigns::never;
  nodes_[n].cleared = 0;
  // Without its batch script the job may be ended by SLURM, and the local levels with it.
  if (n == roster_.batch_host) drain({false, "the batch host was lost"});
  if (stage_ == Stage::gathering || slot < 0) return std::nullopt;
  Failure failure;
  failure.kind = Failure::Kind::node_lost;
  failure.node = n;
  failure.evidence = evidence;
  failure.silent_s = silent_s;
  return failure;
}

void Supervisor::check_gathering() {
  if (state_.outcome) {  // the last leader recorded the end but did not tell the agents
    stage_ = Stage::over;
    actions_.push_back(FinishRun{state_.outcome->exit_code});
    return;
  }
  for (const int n : placement_)
    if (!lost(n) && !nodes_[n].connected) return;
  if (try_adopt()) return;
  if (state_.attempt_live()) {
    // Ranks may be reconnecting to a restarted agent: they get time, less of it when every agent is
    // connected, and none when they would be there in vain.
    bool all_here = true;
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) all_here = all_here && (lost(n) || fresh(n));
    const auto gone = std::find_if(placement_.begin(), placement_.end(), [this](int n) { return lost(n); });
    const bool in_vain = all_here && gone != placement_.end();
    if (!in_vain && now_ - stage_since_ < (all_here ? 1e-3 : 2e-3) * limits_.node_silence_ms) return;
    if (pending_ && gone == placement_.end()) return fail(diagnosed());
    Failure failure;
    if (gone == placement_.end()) {
      failure.kind = Failure::Kind::leader_changed;
      failure.evidence = "the new leader has not found all ranks of the attempt";
    } else {
      failure.kind = Failure::Kind::node_lost;
      failure.node = *gone;
      failure.evidence = name(*gone) + " was lost when the leader changed";
      failure.silent_s = now_ - nodes_[*gone].heard_before.value_or(began_);
    }
    return fail(std::move(failure));
  }
  plan_first();
}

bool Supervisor::try_adopt() {
  // The end of a node that is already lost would never be noticed.
  if (!state_.attempt_live() || lost_is_placed()) return false;
  const bool whole =
      std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.started || r.exited_well; });
  if (!whole) return false;
  record(events::AttemptAdopted{attempt(), highest_step()});
  const auto& live = state_.attempts.back();
  stepped_ = live.first_step_at.has_value();
  if (live.restored && highest_step() >= live.restored->step + Pace::first_rounds) pace_.settled();
  stage_ = Stage::running;
  stage_since_ = now_;
  for (auto& rank : ranks_) {
    if (rank.moved_at <= 0) rank.moved_at = now_;  // else it has not moved since its first report
    rank.stepped_at = rank.seen_at = now_;
  }
  // The ranks may not know the orders that were recorded last.
  if (!state_.hold_ranks()) actions_.push_back(PauseRanks{false});
  tell_ranks();
  return true;
}

void Supervisor::plan_first() {
  Failure absent;
  absent.kind = Failure::Kind::node_lost;
  absent.evidence = "more nodes are lost than there are spares";
  const RunState state = without_unheard_nodes();
  Decision decision =
      decide({roster_, patient(), facts_.shrinking, state, placement_, views(), -1}, absent, false);
  // Agents may not have connected yet: a slot goes to a node that was heard, and time decides about the
  // others.
  const bool whole = !decision.stop && decision.placement.size() == placement_.size();
  for (int n = 0; n < static_cast<int>(nodes_.size()) && !whole; ++n)
    if (!lost(n) && nodes_[n].last_beat < 0) return;
  carry_out(std::move(decision), absent);
}

/// The settings without the limits on failures, for attempts that end on order.
config::Supervise Supervisor::patient() const {
  config::Supervise limits = limits_;
  limits.max_restarts = limits.max_same_step = limits.max_without_checkpoint =
      std::numeric_limits<int>::max();
  return limits;
}

void Supervisor::begin_attempt(std::vector<int> placement, const Decision& decision) {
  placement_ = std::move(placement);
  std::vector<std::string> names;
  for (const int n : placement_) names.push_back(name(n));
  const double wait_s = wait_after(state_.setbacks);
  launch_at_ = now_ + wait_s;
  record(events::AttemptPlanned{attempt() + 1, std::move(names), name_of(decision.answer), decision.because,
                                wait_s});
  ranks_.assign(world(), RankNow{});
  pending_.reset(), ends_.clear(), hang_.reset();
  pace_.new_attempt();
  stragglers_ = Stragglers(limits_, world());
  stepped_ = false;
  newest_step_ = -1;
  all_took_part_ = LifeSigns::never;
  stage_ = Stage::clearing;
  stage_since_ = now_;
  order_waits_ = true;
  actions_.push_back(ClearAll{attempt()});
}

void Supervisor::check_clearing() {
  for (const int n : placement_) {
    if (nodes_[n].cleared >= attempt()) continue;
    if (!order_waits_ && now_ - stage_since_ > clear_limit_s && majority())
      lose(n, now_ - stage_since_,
           fmt::format("{} could not end its old ranks within {} s", name(n), clear_limit_s));
    return;
  }
  if (now_ < launch_at_) return;
  record(events::AttemptStarted{attempt()});
  stage_ = Stage::starting;
  stage_since_ = now_;
  order_waits_ = true;
  actions_.push_back(Launch{attempt(), placement_, state_.trusted_step, newest_durable(state_)});
  tell_ranks();
}

void Supervisor::check_starting() {
  if (pending_ || signalled()) return check_running();
  int missing = -1, missing_count = 0;
  bool one_node = true;
  for (int r = 0; r < world(); ++r) {
    if (ranks_[r].started) continue;
    if (missing < 0) missing = r;
    one_node = one_node && node_of_rank(r) == node_of_rank(missing);
    ++missing_count;
  }
  if (missing < 0) {
    record(events::PlacementVerified{attempt(), world()});
    stage_ = Stage::running;
    stage_since_ = now_;
    for (auto& rank : ranks_) rank.moved_at = rank.stepped_at = rank.seen_at = now_;
    return;
  }
  if (order_waits_ || now_ - stage_since_ <= limits_.start_s) return;
  // A node is to blame only when the ranks of the others came up.
  const bool blame = one_node && placement_.size() > 1;
  Failure failure;
  failure.kind = Failure::Kind::start_failed;
  failure.node = blame ? node_of_rank(missing) : -1;
  failure.rank = missing;
  failure.evidence =
      fmt::format("{} of {} ranks did not start within {} s, the first is rank {} on {}", missing_count,
                  world(), limits_.start_s, missing, name(node_of_rank(missing)));
  failure.silent_s = now_ - stage_since_;
  fail(std::move(failure));
}

void Supervisor::check_running() {
  if (signalled()) return check_signalled();
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.exited_well; })) {
    const std::int64_t step = state_.final_state ? state_.final_state->step : highest_step();
    record(events::AttemptEnded{.attempt = attempt(), .step = step, .cause = "finished"});
    return finish({0, "done", "", 0});
  }
  if (pending_) {
    if (heard_since_failure()) fail(diagnosed());
    return;
  }
  for (int r = 0; r < world(); ++r) {
    const auto& rank = ranks_[r];
    const int node = node_of_rank(r);
    if (!rank.exited_well && fresh(node) && now_ - rank.seen_at > unnamed_limit_s)
      return take_end(
          {r, node, -1, fmt::format("its agent has not reported it for {} s", unnamed_limit_s), now_});
  }
  check_hang();
  if (stage_ != Stage::running) return;
  record_pace();
  check_stragglers();
}

/// Every node has been heard since the failure, so no loss of a node is its cause. While one has not been
/// heard, its silence makes it lost within node_silence_ms.
bool Supervisor::heard_since_failure() const {
  return std::all_of(placement_.begin(), placement_.end(), [this](int n) {
    const auto& node = nodes_[n];
    return node.connected && node.last_beat > pending_since_ + in_flight_s;
  });
}

}  // namespace holdfast::launcher

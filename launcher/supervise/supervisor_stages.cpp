// The supervisor's clock: what each stage waits for, who has been silent for too long, and what follows from
// it. What it is told of (agents, ranks, mpirun) is in supervisor.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

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
constexpr double crossing_s =
    0.02;  // what a node said before it died may still be on its way when others have noticed
constexpr double stopped_gap_s =
    1;  // between two ticks: this very process was stopped, and heard nobody meanwhile

}  // namespace

void Supervisor::tick() {
  if (tick_at_ >= 0 && now_ - tick_at_ > stopped_gap_s) forgive(now_ - tick_at_);
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

/// Agents speak several times a second, the own one too: hearing nothing at all for so long, this process was
/// stopped, and what was said meanwhile has not been read yet.
void Supervisor::at(double now) {
  const double gap_s = now - now_;
  now_ = now;
  if (gap_s <= stopped_gap_s) return;
  resumed_at_ = now;
  for (auto& node : nodes_)
    if (node.last_beat >= 0) node.last_beat += gap_s;
}

/// What was said while this process was stopped has not been read yet: no patience runs out in that time.
void Supervisor::forgive(double gap_s) {
  const auto later = [&](double& since) { since = std::min(since + gap_s, now_); };  // nothing is yet to come
  for (auto& rank : ranks_) {
    later(rank.moved_at), later(rank.stepped_at);
    later(rank.seen_at), later(rank.flight_at);
  }
  later(began_), later(stage_since_), later(pending_since_);
  if (hang_) later(hang_->since);
  if (minority_since_ >= 0) later(minority_since_);
}

/// A switch takes many nodes at once: all of them are named before anything is decided, so that they end one
/// attempt and no slot goes to one that is as dead as the last.
void Supervisor::lose_silent_nodes() {
  std::optional<Failure> first;
  const auto silent_node = [&](int n, double silent_s, const std::string& evidence) {
    auto failure = name_lost(n, silent_s, evidence);
    if (!first) first = std::move(failure);
  };
  for (int n = 0; n < static_cast<int>(nodes_.size()) && stage_ != Stage::over; ++n) {
    const auto& node = nodes_[static_cast<std::size_t>(n)];
    if (lost(n)) continue;
    if (node.last_beat >= 0) {
      const double silent = now_ - node.last_beat;
      if (silent > limits_.node_silence_ms * 1e-3)
        silent_node(n, silent, fmt::format("no heartbeat of {} for {:.1f} s", name(n), silent));
    } else {
      // Never heard under this leader: at the first start agents may be slow to come, after a takeover they
      // are there or not.
      const bool took_over = state_.attempted() && state_.job_term != term_;
      const double patience = took_over ? 1e-3 * limits_.node_silence_ms : limits_.start_s;
      if (now_ - began_ > patience)
        silent_node(n, now_ - began_,
                    fmt::format("no agent has answered on {} for {:.1f} s", name(n), now_ - began_));
    }
  }
  if (first) fail(std::move(*first));
}

void Supervisor::lose(int n, double silent_s, const std::string& evidence) {
  if (auto failure = name_lost(n, silent_s, evidence)) fail(std::move(*failure));
}

/// Puts the loss on record. What it means for the attempt; nothing when it goes on.
std::optional<Failure> Supervisor::name_lost(int n, double silent_s, const std::string& evidence) {
  // It may have been told to run mpirun and not have lived to say that it does.
  const bool hosts_mpirun =
      through_mpirun_ && ((nodes_[static_cast<std::size_t>(n)].mpirun &&
                           nodes_[static_cast<std::size_t>(n)].attempt == attempt()) ||
                          (state_.attempt_live() && state_.attempts.back().host == name(n)));
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
  if (stage_ == Stage::gathering || (slot < 0 && !hosts_mpirun)) return std::nullopt;
  Failure failure;
  failure.kind = slot < 0 ? Failure::Kind::node_idle_lost : Failure::Kind::node_lost;
  failure.node = n, failure.evidence = evidence, failure.silent_s = silent_s;
  return failure;
}

void Supervisor::check_gathering() {
  if (state_.outcome) {  // the last leader wrote the end but did not live to tell it
    stage_ = Stage::over;
    actions_.push_back(FinishRun{state_.outcome->exit_code});
    return;
  }
  for (const int n : placement_)
    if (!lost(n) && !nodes_[static_cast<std::size_t>(n)].connected) return;
  if (try_adopt()) return;
  if (state_.attempt_live()) {
    // Ranks that are only now coming back to a restarted agent deserve the wait; less of it when every agent
    // is here.
    bool all_here = true;
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) all_here = all_here && (lost(n) || fresh(n));
    if (now_ - stage_since_ < (all_here ? 1e-3 : 2e-3) * limits_.node_silence_ms) return;
    if (pending_ && !lost_is_placed()) return fail(diagnosed());
    Failure failure;
    failure.kind = Failure::Kind::leader_changed;
    failure.evidence = "the attempt is not whole under the new leader";
    return fail(std::move(failure));
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
  const auto& live = state_.attempts.back();
  stepped_ = live.first_step_at.has_value();
  if (live.restored && highest_step() >= live.restored->step + Pace::first_rounds) pace_.settled();
  stage_ = Stage::running, stage_since_ = now_;
  for (auto& rank : ranks_) {
    if (rank.moved_at <= 0) rank.moved_at = now_;  // else it has not moved since its agent was first heard
    rank.stepped_at = rank.seen_at = now_;
  }
  // What was on record last, they may have been told by nobody.
  if (!state_.hold_ranks()) actions_.push_back(PauseRanks{false});
  tell_ranks();
  return true;
}

void Supervisor::plan_first() {
  Failure absent;
  absent.kind = Failure::Kind::node_lost, absent.evidence = "more nodes are lost than there are spares";
  const RunState state = with_doubts();
  Decision decision =
      decide({roster_, patient(), facts_.shrinking, state, placement_, views(), -1}, absent, false);
  // Agents may be on their way: a slot is for one that has been heard, and silence decides about the others.
  const bool whole = !decision.stop && decision.placement.size() == placement_.size();
  for (int n = 0; n < static_cast<int>(nodes_.size()) && !whole; ++n)
    if (!lost(n) && nodes_[static_cast<std::size_t>(n)].last_beat < 0) return;
  carry_out(std::move(decision), absent);
}

/// Budgets are for failures.
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
  json planned = {
      {"event", "attempt_planned"}, {"attempt", attempt() + 1},           {"term", term_},
      {"placement", names},         {"answer", name_of(decision.answer)}, {"because", decision.because}};
  if (wait_s > 0) planned["wait_s"] = wait_s;
  record(std::move(planned));
  ranks_.assign(static_cast<std::size_t>(world()), RankNow{});
  pending_.reset(), ends_.clear(), hang_.reset();
  pace_.new_attempt();
  stragglers_ = Stragglers(limits_, world());
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
  if (now_ < launch_at_) return;
  const int host = through_mpirun_ ? choose_host() : -1;
  json started = {{"event", "attempt_started"}, {"attempt", attempt()}};
  if (host >= 0) started["host"] = name(host);
  record(std::move(started));
  stage_ = Stage::starting, stage_since_ = now_;
  actions_.push_back(Launch{attempt(), placement_, state_.trusted_step, newest_durable(state_), host});
  tell_ranks();
}

/// The node that mpirun is started from: of those that are heard, one that failed least often to start the
/// ranks. Then the leader's own: if it goes, another leader has to adopt the attempt anyway. Then nodes with
/// ranks, whose loss ends the attempt anyway.
int Supervisor::choose_host() const {
  const auto key = [this](int n) {
    const auto failed = state_.failed_starts.find(name(n));
    return std::tuple(lost(n), !fresh(n), failed == state_.failed_starts.end() ? 0 : failed->second,
                      name(n) != state_.leader, slot_of(n) < 0, n);
  };
  int best = 0;
  for (int n = 1; n < static_cast<int>(nodes_.size()); ++n)
    if (key(n) < key(best)) best = n;
  return best;
}

/// The ranks are up, so those that could not start them were to blame for that.
void Supervisor::suspect_failed_hosts() {
  const std::string host = state_.attempts.back().host;
  const auto failed = state_.failed_starts;
  for (const auto& [node, times] : failed) {
    const int n = roster_.node_called(node);
    if (node == host || n < 0 || lost(n) || state_.suspects.contains(node)) continue;
    record({{"event", "node_suspected"},
            {"node", node},
            {"evidence", fmt::format("mpirun on {} did not start the ranks ({} times); mpirun on {} did",
                                     node, times, host)}});
    if (limits_.check_spares_s > 0) actions_.push_back(CheckNodes{{n}});
  }
}

void Supervisor::check_starting() {
  if (pending_ || signalled()) return check_running();
  int missing = -1, missing_count = 0;
  bool one_node = true;
  for (int r = 0; r < world(); ++r) {
    if (ranks_[static_cast<std::size_t>(r)].started) continue;
    if (missing < 0) missing = r;
    one_node = one_node && node_of_rank(r) == node_of_rank(missing);
    ++missing_count;
  }
  if (missing < 0) {
    record({{"event", "placement_verified"}, {"attempt", attempt()}, {"ranks", world()}});
    suspect_failed_hosts();
    stage_ = Stage::running, stage_since_ = now_;
    for (auto& rank : ranks_) rank.moved_at = rank.stepped_at = rank.seen_at = now_;
    return;
  }
  if (now_ - stage_since_ <= limits_.start_s) return;
  // Somebody in particular is to blame only when the others came up.
  const bool blame = one_node && placement_.size() > 1;
  Failure failure;
  failure.kind = Failure::Kind::start_failed;
  failure.node = blame ? node_of_rank(missing) : -1, failure.rank = missing;
  failure.evidence =
      fmt::format("{} of {} ranks did not start within {} s, the first is rank {} on {}", missing_count,
                  world(), limits_.start_s, missing, name(node_of_rank(missing)));
  failure.silent_s = now_ - stage_since_;
  // If there is none at all, what starts them may be to blame.
  if (missing_count == world()) failure.failed_host = roster_.node_called(state_.attempts.back().host);
  fail(std::move(failure));
}

void Supervisor::check_running() {
  if (signalled()) return check_signalled();
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankNow& r) { return r.exited_well; })) {
    record({{"event", "attempt_ended"},
            {"attempt", attempt()},
            {"cause", "finished"},
            {"step", state_.final_state ? state_.final_state->step : highest_step()}});
    return finish({0, "done", "", 0});
  }
  if (pending_) {
    if (heard_since_failure()) fail(diagnosed());
    return;
  }
  for (int r = 0; r < world(); ++r) {
    const auto& rank = ranks_[static_cast<std::size_t>(r)];
    const int node = node_of_rank(r);
    if (!rank.exited_well && fresh(node) && now_ - rank.seen_at > forgotten_s)
      return take_end({r, node, -1, fmt::format("its agent has not named it for {} s", forgotten_s), now_});
  }
  check_hang();
  if (stage_ != Stage::running) return;
  record_pace();
  check_stragglers();
}

/// What ended ranks was no node's end: every node has been heard since. While one has not, its silence will
/// decide within node_silence_ms.
bool Supervisor::heard_since_failure() const {
  return std::all_of(placement_.begin(), placement_.end(), [this](int n) {
    const auto& node = nodes_[static_cast<std::size_t>(n)];
    return node.connected && node.last_beat > pending_since_ + crossing_s;
  });
}

}  // namespace holdfast::launcher

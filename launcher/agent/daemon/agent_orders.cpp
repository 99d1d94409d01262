// The agent between its leader, which gives orders, and its ranks and callers: it passes messages on, and
// carries out the orders for this node.
#include <fmt/format.h>
#include <signal.h>

#include "launcher/agent/daemon/agent.hpp"
#include "launcher/agent/daemon/agent_port.hpp"
#include "launcher/agent/daemon/inject.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis clear_poll{20};
// Killed processes that are still there after so long may stay for long: what they wait for is looked at.
constexpr Millis slow_clear{1000}, slow_clear_poll{200}, between_looks{5000};
constexpr Millis pmix_grace{1000};  // a PMIx server ends in a tenth of it
constexpr Millis answer_time{100};  // to send the answer before a fault ends or stops this agent
}  // namespace

void Agent::tell_leader(const Message& message) {
  if (leader_ && leader_->open()) leader_->send(encode(message));
}

Beat Agent::beat() const {
  const int attempt = leadership_.attempt();
  const Mover* mover = system_.mover();
  return {node_, attempt, ranks_.live(attempt), mover ? mover->copies_off() : ""};
}

// --- messages of the leader ---

void Agent::from_leader(const LeaderToAgent& message) {
  leadership_.leader_spoke(loop_.steady_seconds());
  std::visit(Overloaded{
                 [](const LeaderBeat&) {},
                 [&](const Clear& order) { clear(order.attempt); },
                 [&](const FetchState& order) { fetch_state(order); },
                 [&](const StartRanks& order) { start_ranks(order); },
                 [&](const PmixFenced& m) { tell_pmix(m); },
                 [&](const PmixQuestion& m) { tell_pmix(m); },
                 [&](const PmixPublished& m) { tell_pmix(m); },
                 [&](const CommitOutcome& outcome) {
                   votes_.settled(outcome.attempt, outcome.step);
                   ranks_.tell(outcome, outcome.attempt);
                 },
                 [&](const Drain& drain) {
                   if (drain_ != drain) ranks_.forget_heard({RankHeard::What::save, RankHeard::What::stop});
                   drain_ = drain;
                   ranks_.tell(drain, leadership_.attempt());
                   if (drain.stop) ask_ranks_to_end();
                 },
                 [&](const Pause& pause) {
                   // Passed on even if it is no news here: ranks may have been told by the agent before this
                   // one.
                   paused_ = pause.on;
                   if (!paused_) ranks_.forget_heard({RankHeard::What::pause});
                   ranks_.tell(pause, leadership_.attempt());
                 },
                 [&](const CheckNode& m) {
                   system_.check(m.numerics, [this](const NodeHealth& health) { tell_leader(health); });
                 },
                 [&](const DumpStacks& dump) { dump_stacks_of(dump.attempt, dump.rank); },
                 [&](const OrderTaken& answer) { answer_caller(answer); },
                 [&](const Finish& finish) { leave(finish.exit_code); },
             },
             message);
}

void Agent::clear(int attempt) {
  const auto fence = leadership_.admit(attempt);
  if (fence == LeadershipState::Fence::refuse) return;  // a late message of an older attempt
  if (fence == LeadershipState::Fence::newer) {
    forget_drain();
    clear_orphans_ = true;
    if (Mover* mover = system_.mover()) mover->give_up_fetches();
  }
  for (const auto& [number, rank] : ranks_)
    if (rank.attempt < attempt && rank.lives()) leaving_.insert(rank.pid);
  ranks_.forget_older(attempt);
  votes_.forget_older(attempt);
  if (starting_ && starting_->attempt < attempt) starting_.reset(), pmix_variables_.clear(), pmix_.reset();
  clearing_ = attempt;
  clear_limit_ = loop_.now() + pmix_grace;
  next_look_ = loop_.now() + slow_clear;
  spool_.forget_older(attempt);
  try {
    renew_scratch();
  } catch (const std::exception& error) {
    log::error("ranks cannot be started on this node: {}", error.what());
  }
  clear_on();
}

/// A rank is gone when the kernel has taken back all that it had, memory of GPUs, too: when it can be waited
/// for.
void Agent::clear_on() {
  std::erase_if(leaving_, [this](pid_t pid) { return !system_.awaits(pid); });
  for (const pid_t pid : leaving_) system_.signal(pid, SIGKILL);
  const int to_pmix = loop_.now() >= clear_limit_ ? SIGKILL : pmix_end_signal();
  auto left = end_older(clearing_, SIGKILL, to_pmix, clear_orphans_);
  if (left && left->empty() && leaving_.empty()) {
    clear_orphans_ = false;
    why_left_.reset();
    system_.remove_flight_records(clearing_);  // the leader needs them no more
    Cleared cleared{clearing_, system_.free_port(master_port_base + clearing_ % 1000)};
    if (const Mover* mover = system_.mover()) {
      cleared.mover = mover->port();
      cleared.sealed = mover->sealed();
    }
    return tell_leader(cleared);
  }
  const bool slow = loop_.now() >= clear_limit_;
  if (left && loop_.now() >= next_look_) tell_what_is_left(std::move(*left));
  clear_timer_ = loop_.after(slow ? slow_clear_poll : clear_poll, [this] { clear_on(); });
}

/// The leader names it when it blames this node, or waits.
void Agent::tell_what_is_left(std::vector<RunProcess> left) {
  next_look_ = loop_.now() + between_looks;
  for (const pid_t pid : leaving_)
    if (std::ranges::none_of(left, [&](const RunProcess& p) { return p.pid == pid; }))
      left.emplace_back().pid = pid;
  why_left_ = system_.why_left(std::move(left), [this, attempt = clearing_](const std::string& why) {
    if (attempt != clearing_) return;
    if (std::exchange(told_left_, why) != why) log::warn("attempt {} cannot start yet: {}", attempt, why);
    tell_leader(ProcessesLeft{attempt, why});
  });
}

void Agent::dump_stacks_of(int attempt, int number) {
  const LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->pid <= 0 || rank->ended)
    return tell_leader(Stacks{attempt, number, "the rank does not live on " + node_});
  dumps_[number] = system_.stacks(rank->pid, spooled_path(scratch_, run_, rank_log(run_, attempt, number)),
                                  [this, attempt, number](const std::string& text) {
                                    tell_leader(Stacks{attempt, number, text});
                                  });
}

void Agent::look_outside() {
  const int attempt = leadership_.attempt();
  if (promises_.always_reports() || config_.supervise.hang_outside_s <= 0) return;
  std::vector<WatchedRank> watched;
  for (const auto& [number, rank] : ranks_)
    if (rank.attempt == attempt && rank.started && !rank.ended && !rank.reports())
      watched.push_back({number, spooled_path(scratch_, run_, rank_log(run_, attempt, number)),
                         scratch_.heartbeat(number)});
  if (watched.empty()) return;
  if (std::exchange(life_attempt_, attempt) != attempt) life_.forget();
  life_.look_begins(loop_.steady_seconds());
  const auto tell = [this, attempt](double now) {
    for (const auto& seen : life_.seen(attempt, now)) tell_leader(seen);
  };
  const bool looks = system_.look_outside(attempt, watched, [this, attempt, tell](const Growths& growths) {
    if (attempt != life_attempt_) return;
    life_.take(growths);
    tell(growths.at);
  });
  if (looks) return;
  life_.cannot_look(watched, loop_.steady_seconds());
  tell(loop_.steady_seconds());
}

// --- messages of callers ---

void Agent::from_caller(const std::shared_ptr<Peer>& peer, const CallerToAgent& message) {
  std::visit(Overloaded{
                 [&](const Order& order) {
                   if (!leader_ || !leader_->open())
                     return peer->channel->send(encode(OrderTaken{
                         order.id, false, "no leader is known on " + node_ + "; try again", true}));
                   callers_[order.id] = peer;
                   tell_leader(order);
                 },
                 [&](const Inject& fault) {
                   const std::string why_not = inject_fault(fault);
                   if (why_not.empty()) log::warn("drill: {} on rank {}", fault.fault, fault.rank);
                   peer->channel->send(encode(OrderTaken{"", why_not.empty(), why_not}));
                 },
             },
             message);
}

void Agent::answer_caller(const OrderTaken& answer) {
  const auto asked = callers_.find(answer.id);
  if (asked == callers_.end()) return;
  if (const auto peer = asked->second.lock()) peer->channel->send(encode(answer));
  callers_.erase(asked);
}

/// Orders that it has may be recorded or not: callers give them again, with the same id.
void Agent::leader_is_gone() {
  leader_.reset();
  leadership_.leader_lost();
  for (auto& [id, caller] : std::exchange(callers_, {}))
    if (const auto peer = caller.lock())
      peer->channel->send(encode(OrderTaken{id, false, "the leader has just been lost; try again", true}));
}

/// Returns the reason for a refusal; "": the fault is injected now or in a moment.
std::string Agent::inject_fault(const Inject& fault) {
  if (!config_.drill.allowed) return "drill.allowed is not set for this run";
  LocalRank* rank = nullptr;
  if (fault.rank >= 0) {
    rank = ranks_.find(fault.rank, leadership_.attempt());
    if (!rank || rank->ended || rank->pid <= 0)
      return fmt::format("rank {} does not live on {}", fault.rank, node_);
  }
  if (const auto agent_fault = agent_fault_called(fault.fault)) {
    if (agent_fault->at_rank && !rank) return fault.fault + " needs a rank";
    if (agent_fault->sign) {
      Sign sign = *agent_fault->sign;
      sign.rank = fault.rank;
      sign.attempt = leadership_.attempt();
      tell_leader(NodeSigns{{sign}});
    }
    if (agent_fault->at_rank)
      return system_.signal(rank->pid, agent_fault->signal) ? "" : "the rank's process is gone";
    injected_ = loop_.after(answer_time, [this, fault] { system_.inject(fault); });
    return "";
  }
  if (!rank) return "there is no fault " + fault.fault + " of a node";
  if (!rank->linked()) return fmt::format("rank {} is not connected", fault.rank);
  rank->link->send(encode(fault));
  return "";
}

}  // namespace holdfast::launcher

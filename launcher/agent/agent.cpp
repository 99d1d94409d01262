#include "launcher/agent/agent.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agent/old_processes.hpp"
#include "launcher/agent/rank_start.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis clear_poll{20};
constexpr Millis third_voice_limit{2000};
constexpr Millis farewell{300};
constexpr Millis watch_period{100};
// SLURM signals every process of a step: the guardian, which passes it on, and this one.
constexpr Millis same_signal{2000};
constexpr Millis candidate_stagger{500};
constexpr Millis first_wait{
    8000};  // the others leave the first election to the batch host's agent for so long
}  // namespace

Agent::Agent(Loop& loop, RunDir run, std::string node)
    : loop_(loop),
      run_(std::move(run)),
      node_(std::move(node)),
      roster_(read_roster(run_)),
      index_(roster_.node_called(node_)),
      config_(config::load(run_.config()).config),
      cluster_(config::load_cluster(run_.cluster().string())),
      secret_(read_secret(run_.secret())),
      scratch_(scratch_of(run_, node_)),
      flights_(run_.path, std::chrono::seconds(config_.supervise.step_s)),
      children_(loop),
      leader_heard_(Clock::now()) {
  if (index_ < 0)
    throw Error(Exit::usage, "this node is not part of the run",
                node_ + " is not in " + run_.nodes().string());
  const auto accept_any = [this](ChannelPtr channel) { accept(std::move(channel)); };
  tcp_ = std::make_unique<Listener>(
      loop_, TcpAddress{"", roster_.nodes[static_cast<std::size_t>(index_)].port}, secret_, accept_any);
  make_scratch(scratch_);
  local_ = std::make_unique<Listener>(loop_, scratch_.socket(), secret_, accept_any);
  epoch_ = highest_epoch(run_);
  adopt_what_runs();
  beat_timer_ = loop_.every(Millis(config_.supervise.heartbeat_ms), [this] {
    tell_leader(beat());
    for (const auto& flight : flights_.report(ranks_, attempt_, Clock::now())) tell_leader(flight);
  });
  watch_timer_ = loop_.every(watch_period, [this] { watch_leader(); });
  signals_ = loop_.on_signals({SIGTERM, SIGINT}, [this](int signal) { signalled(signal); });
}

Agent::~Agent() = default;

/// What an earlier agent process of this node left running shows how far the run has come. Ranks call in by
/// themselves.
void Agent::adopt_what_runs() {
  const auto running = processes_of(run_, node_);
  for (const auto& p : running) attempt_ = std::max(attempt_, p.attempt);
  for (const auto& p : running)
    if (p.attempt == attempt_ && (p.name == "mpirun" || p.name == "orterun")) {
      mpirun_attempt_ = p.attempt;
      children_.watch(p.pid, [this, attempt = p.attempt] { mpirun_is_gone(attempt, -1); });
    }
}

int Agent::serve() {
  log::info("serving {} as node {} of {}", run_.path.string(), index_, roster_.nodes.size());
  loop_.run();
  return exit_code_;
}

/// The whole job is told to end, or this node is: either way the state must go where the next job finds it.
void Agent::signalled(int signal) {
  const auto now = Clock::now();
  if (signalled_ && now - *signalled_ < same_signal) return;
  if (std::exchange(signalled_, now)) {
    log::info("signal {} again: ending this node's ranks", signal);
    return leave(128 + signal);
  }
  log::info("signal {}: asking for a last checkpoint", signal);
  wish({true, signal == SIGTERM ? "SIGTERM" : "SIGINT"});
  // A little more than the leader takes: its word is the better end.
  drain_timer_ = loop_.after(std::chrono::seconds(config_.checkpoint.drain_s) + same_signal, [this, signal] {
    log::warn("no leader has ended the run within {} s: leaving", config_.checkpoint.drain_s);
    leave(128 + signal);
  });
}

void Agent::wish(const Drain& what) {
  if (!wish_ || !wish_->stop) wish_ = what;
  tell_leader(*wish_);
}

void Agent::leave(int code) {
  if (leave_timer_) return;
  exit_code_ = code;
  beat_timer_.reset(), watch_timer_.reset(), drain_timer_.reset();
  campaign_.reset();
  // Our own ranks have saved what they could, and do not listen to SIGTERM.
  const int signal = own_trainer(config_.rank) ? SIGKILL : SIGTERM;
  if (code != 0) kill_older(run_, node_, INT32_MAX, signal);
  // What is asked to end gets its time; a word that is still on its way to another node gets a moment.
  const auto soonest = Deadline::in(farewell),
             latest = Deadline::in(std::chrono::seconds(config_.supervise.stop_s));
  leave_timer_ = loop_.every(clear_poll, [this, soonest, latest] {
    const bool empty = latest.passed() ? kill_older(run_, node_, INT32_MAX, SIGKILL) == 0
                                       : processes_of(run_, node_).empty();
    if (!empty || !soonest.passed()) return;
    remove_flight_records(run_.path, INT32_MAX);
    if (remove_scratch(scratch_)) remove_local_level(run_, config_.checkpoint.local);
    loop_.stop();
  });
}

// --- who is calling ---

void Agent::accept(ChannelPtr channel) {
  auto guest = std::make_shared<Guest>();
  guest->channel = channel;
  guests_[channel.get()] = guest;
  const std::weak_ptr<Guest> weak = guest;
  channel->handle({nullptr,
                   [this, weak](std::string_view line) {
                     const auto g = weak.lock();
                     if (!g) return;
                     std::string why;
                     const auto message = decode(line, why);
                     if (!message) return log::warn("a malformed message was refused: {}", why);
                     if (!g->known) {
                       if (const auto* hello = std::get_if<Hello>(&*message))
                         g->known = true, g->hello = *hello, welcome(g, *hello);
                       return;
                     }
                     if (g->hello.role == Hello::Role::leader) {
                       if (g->channel == leader_) from_leader(*message);
                     } else if (g->hello.role == Hello::Role::spawner) {
                       if (const auto* exec = std::get_if<Exec>(&*message)) run_daemon(g, exec->command);
                     } else if (g->hello.role == Hello::Role::keeper) {
                       if (const auto* asked = std::get_if<Drain>(&*message)) wish(*asked);
                     } else {
                       from_rank(g, *message);
                     }
                   },
                   [this, weak](const std::string&) {
                     if (const auto g = weak.lock()) {
                       if (leader_ == g->channel) leader_.reset();
                       guests_.erase(g->channel.get());
                     }
                   }});
}

void Agent::welcome(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  switch (hello.role) {
    case Hello::Role::leader:
      return welcome_leader(guest, hello);
    case Hello::Role::candidate:
      return answer_candidate(guest->channel, hello);
    case Hello::Role::rank:
    case Hello::Role::shim:
      return welcome_rank(guest, hello);
    case Hello::Role::spawner:
    case Hello::Role::keeper:
      return;
  }
}

void Agent::welcome_leader(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  if (hello.epoch < epoch_) {
    guests_.erase(guest->channel.get());
    return guest->channel->close();
  }
  if (hello.epoch > epoch_) log::info("{} leads, epoch {}", hello.node, hello.epoch);
  epoch_ = hello.epoch;
  if (leading_ && leading_->epoch() < epoch_) leading_.reset();
  campaign_.reset();
  if (leader_) {
    guests_.erase(leader_.get());
    leader_->close();
  }
  leader_ = guest->channel;
  leader_heard_ = Clock::now();
  tell_leader(beat());
  for (const auto& message : ranks_.story()) tell_leader(message);
  if (wish_) tell_leader(*wish_);
}

void Agent::answer_candidate(const ChannelPtr& channel, const Hello& hello) {
  const auto age = std::chrono::duration_cast<Millis>(Clock::now() - leader_heard_);
  const bool leaderless = !leader_ || age.count() >= config_.supervise.leader_silence_ms;
  channel->send(encode(Answer{leaderless && hello.epoch > epoch_ && !leading_, epoch_, age.count()}));
}

void Agent::welcome_rank(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  if (hello.attempt < attempt_) {
    log::warn("rank {} of attempt {} is fenced: this is attempt {}", hello.rank, hello.attempt, attempt_);
    kill_older(run_, node_, attempt_, SIGKILL);
    guests_.erase(guest->channel.get());
    return guest->channel->close();
  }
  if (hello.attempt > attempt_) drain_.reset();
  attempt_ = hello.attempt;
  LocalRank& rank = ranks_.at(hello.rank, hello.attempt);
  (hello.role == Hello::Role::shim ? rank.shim : rank.link) = guest->channel;
  if (hello.role == Hello::Role::rank && drain_) guest->channel->send(encode(*drain_));
  if (hello.role == Hello::Role::shim && hello.pid > 0) rank_is_up(rank, static_cast<pid_t>(hello.pid));
}

// --- orders ---

void Agent::tell_leader(const Message& message) {
  if (leader_ && leader_->open()) leader_->send(encode(message));
}

Beat Agent::beat() const {
  return {node_, attempt_, mpirun_attempt_ != 0 && mpirun_attempt_ == attempt_, ranks_.live(attempt_)};
}

void Agent::from_leader(const Message& message) {
  leader_heard_ = Clock::now();
  if (const auto* order = std::get_if<Clear>(&message)) return clear(order->epoch, order->attempt);
  if (const auto* order = std::get_if<StartRanks>(&message)) return start_ranks(*order);
  if (const auto* order = std::get_if<StartMpirun>(&message)) return start_mpirun(*order);
  if (const auto* verdict = std::get_if<Verdict>(&message)) return ranks_.tell(*verdict);
  if (const auto* drain = std::get_if<Drain>(&message)) {
    drain_ = *drain;
    return ranks_.tell(*drain, attempt_);
  }
  if (const auto* finish = std::get_if<Finish>(&message)) return leave(finish->exit_code);
}

void Agent::clear(int, int attempt) {
  if (attempt < attempt_) return;  // an older leader's word that came late
  if (attempt > attempt_) drain_.reset();
  attempt_ = attempt;
  ranks_.forget_older(attempt);
  if (mpirun_attempt_ < attempt_) mpirun_attempt_ = 0;
  clearing_ = attempt;
  clear_on();
}

void Agent::clear_on() {
  if (kill_older(run_, node_, clearing_, SIGKILL) == 0) {
    remove_flight_records(run_.path, clearing_);  // the leader has decided without them, or by them
    return tell_leader(Cleared{clearing_});
  }
  clear_timer_ = loop_.after(clear_poll, [this] { clear_on(); });
}

// --- leadership ---

void Agent::watch_leader() {
  if (leading_ || campaign_) return;
  const auto place = std::find(roster_.candidates.begin(), roster_.candidates.end(), index_);
  if (place == roster_.candidates.end()) return;
  const auto turn = candidate_stagger * (place - roster_.candidates.begin());
  Millis patience = Millis(config_.supervise.leader_silence_ms) + turn;
  if (epoch_ == 0) patience = place == roster_.candidates.begin() ? Millis(0) : first_wait + turn;
  if (Clock::now() - leader_heard_ >= patience) campaign();
}

void Agent::campaign() {
  epoch_ = std::max(epoch_, highest_epoch(run_));
  campaign_ = std::make_unique<Campaign>(
      loop_, run_, roster_, secret_, index_, epoch_ + 1, [] { slurm::ClusterCli().ping(third_voice_limit); },
      [this](bool won, int epoch) {
        // Not from inside the campaign's own call.
        loop_.post([this, won, epoch] {
          campaign_.reset();
          if (won && epoch > epoch_) return lead(epoch);
          epoch_ = std::max(epoch_, won ? 0 : highest_epoch(run_));
        });
      });
}

void Agent::lead(int epoch) {
  epoch_ = epoch;
  leader_heard_ = Clock::now();
  log::info("leading, epoch {}", epoch);
  try {
    leading_ = std::make_unique<Leader>(loop_, run_, roster_, config_, secret_,
                                        std::make_shared<slurm::ClusterCli>(), epoch, index_,
                                        [this](const std::string& why) {
                                          loop_.post([this, why] {
                                            log::warn("no longer leading: {}", why);
                                            leading_.reset();
                                          });
                                        });
  } catch (const std::exception& error) {
    log::error("cannot lead: {}", error.what());
  }
}

}  // namespace holdfast::launcher

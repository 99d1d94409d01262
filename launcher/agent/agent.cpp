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
constexpr Millis shim_grace{300};  // between a rank's death and its shim's word about it
constexpr Millis watch_period{100};
// SLURM signals every process of a step: the guardian, which passes it on, and this one.
constexpr Millis same_signal{2000};
constexpr Millis candidate_stagger{500};
constexpr Millis first_wait{
    8000};  // the others leave the first election to the batch host's agent for so long
}  // namespace

struct Agent::Guest {
  ChannelPtr channel;
  Hello hello;
  bool known = false;
};

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

// --- ranks ---

void Agent::rank_is_up(LocalRank& rank, pid_t pid) {
  if (rank.started) return;
  rank.started = true, rank.pid = pid;
  tell_leader(RankStarted{rank.rank, rank.attempt, pid});
  if (!rank.shim) return;
  // The shim brings the exit code; if it has died with its rank, the pidfd alone must do.
  children_.watch(pid, [this, number = rank.rank, attempt = rank.attempt] {
    if (auto* gone = ranks_.find(number, attempt))
      gone->grace = loop_.after(shim_grace, [this, number, attempt] { rank_is_gone(number, attempt, -1); });
  });
}

void Agent::rank_is_gone(int number, int attempt, int status) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->ended) return;
  rank->ended = true;
  rank->exited = RankExited{number, attempt, status};
  tell_leader(*rank->exited);
}

void Agent::from_rank(const std::shared_ptr<Guest>& guest, const Message& message) {
  const int number = guest->hello.rank, attempt = guest->hello.attempt;
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  // The hello says who speaks; a message cannot speak for another rank.
  if (const auto* m = std::get_if<RankProgress>(&message)) {
    LocalRanks::take(*rank, *m, Clock::now());
  } else if (const auto* restored = std::get_if<RankRestored>(&message)) {
    rank->restored = RankRestored{number, attempt, restored->from};
    tell_leader(*rank->restored);
  } else if (const auto* vote = std::get_if<RankVote>(&message)) {
    tell_leader(rank->votes[vote->step] = RankVote{number, attempt, vote->step, vote->ok, vote->payload});
  } else if (const auto* finished = std::get_if<RankFinished>(&message)) {
    tell_leader(*(rank->finished = RankFinished{number, attempt, finished->state}));
    guest->channel->send(encode(Taken{}));
  } else if (const auto* failed = std::get_if<RankFailed>(&message)) {
    tell_leader(*(rank->failed = RankFailed{number, attempt, failed->exit_code, failed->why}));
    guest->channel->send(encode(Taken{}));
  } else if (const auto* exited = std::get_if<RankExited>(&message)) {
    rank_is_gone(number, attempt, exited->status);
    guest->channel->send(encode(Taken{}));
  }
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

Command Agent::attempt_command(std::vector<std::string> argv, int epoch, int attempt, int world) const {
  Command command;
  command.argv = std::move(argv);
  command.environment = attempt_environment(run_, node_, scratch_, epoch, attempt, world,
                                            roster_.ranks_per_node, cluster_, config_.rank);
  command.new_session = true;  // it outlives this agent process
  return command;
}

void Agent::start_ranks(const StartRanks& order) {
  if (order.attempt != attempt_) return;
  for (const auto& place : order.ranks) {
    RankEnv at{place.rank,       order.world, place.local_rank, order.ranks_per_node, order.epoch,
               order.attempt,    node_,       run_.path,        scratch_.socket(),    order.master,
               order.master_port};
    Command command = attempt_command(rank_command(config_.rank), order.epoch, order.attempt, order.world);
    command.deaf = own_trainer(config_.rank);  // it hears of the end from us
    for (const auto& variable : to_variables(at)) command.environment->push_back(variable);
    command.output = rank_log(run_, order.attempt, place.rank);
    LocalRank& rank = ranks_.at(place.rank, order.attempt);
    try {
      const pid_t pid = children_.start(command, [this, number = place.rank, attempt = order.attempt](
                                                     int status) { rank_is_gone(number, attempt, status); });
      rank_is_up(rank, pid);
    } catch (const Error& error) {
      tell_leader(*(rank.failed =
                        RankFailed{place.rank, order.attempt, static_cast<int>(Exit::usage), error.what()}));
    }
  }
}

void Agent::start_mpirun(const StartMpirun& order) {
  if (order.attempt != attempt_) return;
  const int world = static_cast<int>(order.slots.size()) * roster_.ranks_per_node;
  try {
    files::replace_atomically(scratch_.hosts(order.attempt), hosts_file(order.slots, roster_.ranks_per_node));
    Command command =
        attempt_command(mpirun_arguments(scratch_, order.attempt, world, cluster_.control_interface),
                        order.epoch, order.attempt, world);
    command.output = attempt_logs(run_, order.attempt) / "mpirun.log";
    command.deaf = true;  // it would kill the ranks, which have a checkpoint to write
    children_.start(command,
                    [this, attempt = order.attempt](int status) { mpirun_is_gone(attempt, status); });
    mpirun_attempt_ = order.attempt;
  } catch (const Error& error) {
    log::error("mpirun cannot be started: {}", error.what());
    tell_leader(MpirunExited{order.attempt, static_cast<int>(Exit::runtime)});
  }
}

void Agent::mpirun_is_gone(int attempt, int status) {
  if (mpirun_attempt_ == attempt) mpirun_attempt_ = 0;
  tell_leader(MpirunExited{attempt, status});
}

void Agent::run_daemon(const std::shared_ptr<Guest>& guest, const std::string& line) {
  const Hello& hello = guest->hello;
  if (hello.attempt != attempt_) {
    guest->channel->send(encode(Exited{static_cast<int>(Exit::transient)}));
    return;
  }
  try {
    // The line is mpirun's own, made for a remote shell; nothing of a configuration is in it.
    Command command = attempt_command({"/bin/sh", "-c", line}, hello.epoch, hello.attempt, roster_.world());
    command.output = attempt_logs(run_, hello.attempt) / ("node-" + node_ + ".log");
    command.deaf = true;
    children_.start(command,
                    [channel = guest->channel](int status) { channel->send(encode(Exited{status})); });
  } catch (const Error& error) {
    log::error("mpirun's daemon cannot be started: {}", error.what());
    guest->channel->send(encode(Exited{static_cast<int>(Exit::runtime)}));
  }
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

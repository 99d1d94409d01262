#include "launcher/agent/agent.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agent/guardian.hpp"
#include "launcher/agent/old_processes.hpp"
#include "launcher/agent/rank_start.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis leave_poll{20};
constexpr Millis agent_farewell{300};
constexpr Millis watch_period{100};
constexpr Millis signs_period{1000};
// SLURM signals every process of a step: the guardian, which passes it on, and this one.
constexpr Millis same_signal{2000};

Standing first_standing(const RunDir& run, const Roster& roster, int node, const config::Supervise& limits) {
  const auto place = std::find(roster.candidates.begin(), roster.candidates.end(), node);
  Standing::Limits patience;
  patience.leader_silence_s = 1e-3 * limits.leader_silence_ms;
  return {place == roster.candidates.end() ? -1 : static_cast<int>(place - roster.candidates.begin()),
          patience, highest_epoch(run), 0, steady_seconds()};
}
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
      flights_(run_.path, config_.supervise),
      children_(loop),
      care_(loop, run_, cluster_, config_.rank, roster_.ranks_per_node),
      reader_(loop),
      standing_(first_standing(run_, roster_, index_, config_.supervise)),
      arbiter_(loop) {
  if (config_.supervise.ledger.empty()) config_.supervise.ledger = cluster_.ledger;
  if (index_ < 0)
    throw Error(Exit::usage, "this node is not part of the run",
                node_ + " is not in " + run_.nodes().string());
  const auto accept_any = [this](ChannelPtr channel) { accept(std::move(channel)); };
  tcp_ = std::make_unique<Listener>(
      loop_, TcpAddress{"", roster_.nodes[static_cast<std::size_t>(index_)].port}, secret_, accept_any);
  open_scratch();
  sweep_node(scratch_);
  adopt_what_runs();
  beat_timer_ = loop_.every(Millis(config_.supervise.heartbeat_ms), [this] {
    tell_leader(beat());
    for (const auto& flight : flights_.report(ranks_, standing_.attempt(), Clock::now())) tell_leader(flight);
  });
  signs_ = std::make_unique<Signs>(loop_, sign_places(run_, node_, config_, cluster_));
  signs_timer_ = loop_.every(signs_period, [this] {
    if (!leader_) return;  // they wait for one
    for (const auto& part : messages_of(signs_->look())) tell_leader(part);
  });
  watch_timer_ = loop_.every(watch_period, [this] { watch_leader(); });
  signals_ = loop_.on_signals({SIGTERM, SIGINT, slurms_sigterm()}, [this](int signal) { signalled(signal); });
}

Agent::~Agent() = default;

void Agent::open_scratch() {
  make_scratch(scratch_);
  claim_ = claim_scratch(scratch_, run_, config_.checkpoint.local);
  local_.reset();  // its path is free for the next one
  local_ = std::make_unique<Listener>(loop_, scratch_.socket(), secret_,
                                      [this](ChannelPtr channel) { accept(std::move(channel)); });
}

/// Somebody may have swept it away: systemd-logind does so in /dev/shm when the user's last session on the
/// node ends.
void Agent::renew_scratch() {
  std::error_code unknown;
  if (files::fs::exists(scratch_.socket(), unknown) && files::fs::exists(scratch_.program(), unknown) &&
      files::fs::exists(scratch_.claim(), unknown))
    return;
  log::warn("{} is not whole: it is made anew", scratch_.folder.string());
  open_scratch();
}

/// What an earlier agent process of this node left running shows how far the run has come. Shims, and ranks
/// that speak, call in by themselves; of those that an agent started itself there is a record.
void Agent::adopt_what_runs() {
  const auto running = processes_of(run_, node_);
  auto ranks = rank_records(scratch_);
  std::erase_if(ranks, [](const RankRecord& r) { return !r.status && parent_of(r.pid) != ::getppid(); });
  for (const auto& p : running) standing_.meet(p.attempt);
  for (const auto& r : ranks) standing_.meet(r.attempt);
  for (const auto& r : ranks)
    if (r.attempt == standing_.attempt()) adopt_rank(r);
  for (const auto& p : running)
    if (p.attempt == standing_.attempt() && (p.name == "mpirun" || p.name == "orterun")) {
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
  slurm_signalled_step_ = slurm_signalled_step_ || signal == slurms_sigterm();
  signalled_directly_ = signalled_directly_ || signal == SIGTERM;
  if (signal == slurms_sigterm()) signal = SIGTERM;
  const auto now = Clock::now();
  if (signalled_ && now - *signalled_ < same_signal) return;
  if (std::exchange(signalled_, now)) {
    log::info("signal {} again: ending this node's ranks", signal);
    return leave(128 + signal, true);
  }
  log::info("signal {}: asking for a last checkpoint", signal);
  wish({true, signal == SIGTERM ? "SIGTERM" : "SIGINT"});
  ask_ranks_to_end();  // nobody may lead just now
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

/// `at_once`: a save that is under way is not waited for.
void Agent::leave(int code, bool at_once) {
  if (leave_timer_) return;
  exit_code_ = code;
  beat_timer_.reset(), watch_timer_.reset(), drain_timer_.reset(), signs_timer_.reset();
  campaign_.reset();
  // Ranks that were asked have the rest of their time, and a second SIGTERM would end many a save.
  const bool asked = asked_at_ && !at_once;
  const Clock::time_point latest = asked ? *asked_at_ + std::chrono::seconds(config_.checkpoint.drain_s)
                                         : Clock::now() + std::chrono::seconds(config_.supervise.stop_s);
  // Our own ranks have saved what they could, and do not listen to SIGTERM.
  if (code != 0 && !asked) kill_older(run_, node_, INT32_MAX, own_trainer(config_.rank) ? SIGKILL : SIGTERM);
  // What is asked to end gets its time; a word that is still on its way to another node gets a moment.
  const auto soonest = Deadline::in(agent_farewell);
  leave_timer_ = loop_.every(leave_poll, [this, soonest, latest, wait_for_ranks = asked]() mutable {
    if (wait_for_ranks && !ranks_.any_lives()) wait_for_ranks = false, end_helpers();
    const bool empty = Clock::now() >= latest ? kill_older(run_, node_, INT32_MAX, SIGKILL) == 0
                                              : processes_of(run_, node_).empty();
    if (!empty || !soonest.passed()) return;
    remove_flight_records(run_.path, INT32_MAX);
    claim_.reset();
    if (remove_scratch(scratch_)) remove_local_level(run_, config_.checkpoint.local);
    loop_.stop();
  });
}

/// mpirun and what it has started beside the ranks: it would have ended them if one of its parts had left.
void Agent::end_helpers() {
  for (const auto& p : processes_of(run_, node_))
    if (p.rank < 0) ::kill(p.pid, SIGKILL);
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
                     } else if (g->hello.role == Hello::Role::caller) {
                       from_caller(g, *message);
                     } else {
                       from_rank(g, *message);
                     }
                   },
                   [this, weak](const std::string&) {
                     if (const auto g = weak.lock()) {
                       if (leader_ == g->channel) leader_is_gone();
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
    case Hello::Role::caller:
      return;
  }
}

void Agent::welcome_leader(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  const bool news = hello.epoch > standing_.epoch();
  if (!standing_.accept_leader(hello.epoch, steady_seconds())) {
    guests_.erase(guest->channel.get());
    return guest->channel->close();
  }
  if (news) log::info("{} leads, epoch {}", hello.node, hello.epoch);
  if (!standing_.leads()) leading_.reset(), beginning_.reset();
  campaign_.reset();
  if (leader_) {
    guests_.erase(leader_.get());
    leader_->close();
  }
  leader_ = guest->channel;
  tell_leader(beat());
  for (const auto& message : ranks_.story()) tell_leader(message);
  if (wish_) tell_leader(*wish_);
}

void Agent::answer_candidate(const ChannelPtr& channel, const Hello& hello) {
  channel->send(encode(standing_.answer(hello.epoch, steady_seconds())));
}

void Agent::welcome_rank(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  const auto fence = standing_.meet(hello.attempt);
  if (fence == Standing::Fence::refuse) {
    log::warn("rank {} of attempt {} is fenced: this is attempt {}", hello.rank, hello.attempt,
              standing_.attempt());
    kill_older(run_, node_, standing_.attempt(), SIGKILL);
    guests_.erase(guest->channel.get());
    return guest->channel->close();
  }
  if (fence == Standing::Fence::newer) forget_drain();
  LocalRank& rank = ranks_.at(hello.rank, hello.attempt);
  (hello.role == Hello::Role::shim ? rank.shim : rank.link) = guest->channel;
  if (hello.role == Hello::Role::rank && drain_) guest->channel->send(encode(*drain_));
  if (hello.role == Hello::Role::rank && paused_) guest->channel->send(encode(Pause{true}));
  if (hello.role == Hello::Role::shim && hello.pid > 0) rank_is_up(rank, static_cast<pid_t>(hello.pid));
}

}  // namespace holdfast::launcher

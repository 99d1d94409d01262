#include "launcher/agent/daemon/agent.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <charconv>

#include "launcher/agent/daemon/agent_port.hpp"
#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis leave_poll{20};
constexpr Millis blind_limit{10000};  // then another process may have the descriptors that this one lacks
constexpr Millis flush_time{300};     // for messages that are still on their way to another node
constexpr Millis logs_patience{5000};
constexpr Millis watch_period{100};
constexpr Millis alive_period{500};
constexpr Millis signs_period{1000};
// SLURM signals every process of a step: the guardian, which passes it on, and this one.
constexpr Millis same_signal{2000};

/// The term that this agent, or the one before it on this node, has followed last.
void remember_term(const Scratch& scratch, int term) {
  try {
    files::replace_atomically(scratch.term(), std::to_string(term));
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}
int known_term(const Scratch& scratch, const RunDir& run) {
  if (!files::is_there(scratch.term())) return highest_valid_term(run);
  const std::string text = files::read_text(scratch.term());
  int term = 0;
  std::from_chars(text.data(), text.data() + text.size(), term);
  return term;
}

}  // namespace

Agent::Agent(Loop& loop, NodeSystem& system, std::shared_ptr<slurm::Cluster> slurm, AgentInput in,
             std::function<void(int)> ended)
    : loop_(loop),
      system_(system),
      run_(std::move(in.run)),
      scratch_(std::move(in.scratch)),
      local_level_(std::move(in.local_level)),
      node_(scratch_.node),
      roster_(std::move(in.roster)),
      index_(roster_.node_called(node_)),
      ended_(std::move(ended)),
      config_(std::move(in.config)),
      promises_(config::promises_of(config_.rank)),
      cluster_(std::move(in.cluster)),
      secret_(in.secret),
      spool_(loop, scratch_, run_),
      flights_(scratch_.folder, config_.supervise),
      reader_(loop),
      slurm_(slurm),
      slurm_asker_(loop),
      candidate_(loop, run_, roster_, config_, secret_, std::move(slurm), index_, known_term(scratch_, run_),
                 [this](int code) { leave(code); }),
      leadership_(candidate_.leadership()) {
  const auto accept_any = [this](ChannelPtr channel) { accept(std::move(channel)); };
  tcp_ = listen_for_agents(loop_, run_, roster_.nodes[index_], secret_, accept_any);
  open_scratch();
  adopt_what_runs();
  alive_timer_ = loop_.every(alive_period, [this] { system_.tell_guardian(false); });
  beat_timer_ = loop_.every(Millis(config_.supervise.heartbeat_ms), [this] {
    tell_leader(beat());
    for (const auto& flight : flights_.report(ranks_, leadership_.attempt(), loop_.now()))
      tell_leader(flight);
  });
  signs_ = std::make_unique<Signs>(loop_, in.signs);
  if (ranks_.begin() != ranks_.end()) signs_->attempt_begins(leadership_.attempt());  // adopted
  signs_timer_ = loop_.every(signs_period, [this] {
    if (!leader_) return;  // signs are kept until there is one
    for (const auto& part : messages_of(signs_->poll())) tell_leader(part);
    look_outside();
  });
  watch_timer_ = loop_.every(watch_period, [this] { candidate_.watch(); });
  warm_ranks();
}

Agent::~Agent() = default;

void Agent::open_scratch() {
  files::make_private_folder(scratch_.folder);
  if (!local_level_.empty()) files::make_private_folder(local_level_);
  claim_ = claim_scratch(scratch_, run_, local_level_);
  local_.reset();  // its path is free for the next one
  local_ =
      loop_.listen({scratch_.socket(), secret_, [this](ChannelPtr channel) { accept(std::move(channel)); }});
}

/// The scratch folder may have been removed: systemd-logind removes it from /dev/shm when the user's last
/// session on the node ends.
void Agent::renew_scratch() {
  std::error_code unknown;
  if (files::fs::exists(scratch_.socket(), unknown) && files::fs::exists(scratch_.claim(), unknown)) return;
  log::warn("{} is incomplete and is created again", scratch_.folder.string());
  open_scratch();
}

/// Processes that an earlier agent of this node left running show which attempt is live. Ranks that report
/// and PMIx servers connect again by themselves; how a rank ends its record shows.
void Agent::adopt_what_runs() {
  auto running = system_.processes(false);
  std::erase_if(running, [](const RunProcess& p) { return p.attempt == waiting_attempt; });  // no attempt yet
  const auto ranks = rank_records(scratch_);
  for (const auto& p : running) leadership_.admit(p.attempt);
  for (const auto& r : ranks) leadership_.admit(r.attempt);
  for (const auto& r : ranks) {
    if (r.attempt != leadership_.attempt()) continue;
    if (r.status || system_.is_guardians(r.pid))
      adopt_rank(r);
    else  // the agent before has seen its end; it must not be started again
      ranks_.at(r.rank, r.attempt).ended = true;
  }
  for (const auto& p : running)  // the record of a rank may be lost
    if (p.rank >= 0 && p.attempt == leadership_.attempt() && p.leads_session &&
        !ranks_.find(p.rank, p.attempt))
      adopt_rank({p.rank, p.attempt, p.pid, {}});
  for (const auto& p : running)
    if (p.attempt == leadership_.attempt() && p.name == pmix_program) {
      pmix_attempt_ = p.attempt;
      system_.watch(p.pid, [this, attempt = p.attempt] { pmix_is_gone(attempt, "it has vanished"); });
    }
}

/// The whole job is told to end, or this node alone: in both cases the state must be saved for the next job.
void Agent::signalled(int signal) {
  slurm_signalled_step_ = slurm_signalled_step_ || signal == slurms_sigterm();
  signalled_directly_ = signalled_directly_ || signal == SIGTERM;
  if (slurm_signals_all()) ask_whom_slurm_signals();
  if (signal == slurms_sigterm()) signal = SIGTERM;
  const auto now = loop_.now();
  if (signalled_ && now - *signalled_ < same_signal) return;
  if (std::exchange(signalled_, now)) {
    log::info("signal {} again: ending this node's ranks", signal);
    return leave(128 + signal, true);
  }
  log::info("signal {}: asking for a last checkpoint", signal);
  request_drain({true, signal == SIGTERM ? "SIGTERM" : "SIGINT"});
  ask_ranks_to_end();  // there may be no leader at present
  // A little longer than the leader takes, whose Finish is preferred.
  drain_timer_ = loop_.after(std::chrono::seconds(config_.checkpoint.drain_s) + same_signal, [this, signal] {
    log::warn("no leader has ended the run within {} s: leaving", config_.checkpoint.drain_s);
    leave(128 + signal);
  });
}

void Agent::request_drain(const Drain& what) {
  if (!drain_request_ || !drain_request_->stop) drain_request_ = what;
  tell_leader(*drain_request_);
}

/// Signals what attempts before this one have left, and returns it. Nothing: this process cannot look.
/// `orphans`: nobody knows their attempt.
std::optional<std::vector<RunProcess>> Agent::end_older(int attempt, int signal, int to_pmix, bool orphans) {
  try {
    auto left = kill_older(system_, attempt, signal, to_pmix, orphans);
    cannot_look_since_.reset();
    return left;
  } catch (const Error& error) {
    if (!cannot_look_since_) {
      cannot_look_since_ = loop_.now();
      log::error("{}", error.what());
    } else if (loop_.now() - *cannot_look_since_ > blind_limit && !leave_timer_) {
      log::error("this agent gives way to a new one, as it cannot look at the processes of its node");
      system_.replace_agent();
    }
    return std::nullopt;
  }
}

/// `at_once`: without waiting for a save that is under way.
void Agent::leave(int code, bool at_once) {
  if (leave_timer_) return;
  system_.tell_guardian(true);  // to remove what it leaves may take long
  alive_timer_.reset(), beat_timer_.reset(), watch_timer_.reset(), drain_timer_.reset(), signs_timer_.reset();
  candidate_.give_up_election();
  if (warm_) warm_->end();
  // Ranks that were told to end keep the rest of their time; a second SIGTERM would abort many a save.
  const bool asked = asked_at_ && !at_once;
  Clock::time_point latest = asked ? *asked_at_ + std::chrono::seconds(config_.checkpoint.drain_s)
                                   : loop_.now() + std::chrono::seconds(config_.supervise.stop_s);
  // Those that follow orders, and have not taken the one to end.
  for (auto& [number, rank] : ranks_)
    if (asked && rank.started && !rank.ended && !rank.asked &&
        !rank.heard_orders.contains(RankHeard::What::stop)) {
      send_sigterm(rank);
      latest = std::max(latest, loop_.now() + std::chrono::seconds(config_.supervise.stop_s));
    }
  // Ranks that always report have saved what they could, and block SIGTERM.
  if (code != 0 && !asked) end_older(INT32_MAX, promises_.always_reports() ? SIGKILL : SIGTERM, 0);
  // Processes that were told to end get their time; messages that are still being sent get a moment.
  const auto soonest = loop_.now() + flush_time;
  leave_timer_ = loop_.every(leave_poll, [this, code, soonest, latest, wait_for_ranks = true,
                                          logs_limit = std::optional<Clock::time_point>()]() mutable {
    if (wait_for_ranks && !ranks_.any_lives()) {  // a rank ends when its PMIx server does
      wait_for_ranks = false;
      end_older(INT32_MAX, 0, pmix_end_signal());
    }
    const auto now = loop_.now();
    const bool late = now >= latest;
    const int signal = late ? SIGKILL : 0;
    const auto left = end_older(INT32_MAX, signal, signal);
    const bool given_up = late && now >= latest + std::chrono::seconds(config_.supervise.clear_s);
    if ((left ? !left->empty() : !late) && !given_up) return;
    if (now < soonest) return;
    if (given_up && !logs_limit)
      log::error("{} processes have been killed and have not ended within {} s: they are left to SLURM",
                 left ? std::to_string(left->size()) : "some", config_.supervise.clear_s);
    // Storage that does not answer now has the logs until a moment ago.
    if (!logs_limit) logs_limit = now + logs_patience;
    if (!spool_.empty() && now < *logs_limit) return spool_.copy();
    system_.remove_flight_records(INT32_MAX);
    claim_.reset();
    if (remove_scratch(scratch_)) remove_local_level(local_level_);
    ended_(code);
  });
}

// --- incoming connections ---

void Agent::accept(ChannelPtr channel) {
  auto peer = std::make_shared<Peer>();
  peer->channel = channel;
  peers_[channel.get()] = peer;
  const std::weak_ptr<Peer> weak = peer;
  channel->handle({nullptr,
                   [this, weak](std::string_view line) {
                     if (const auto p = weak.lock()) hear(p, line);
                   },
                   [this, weak](const std::string&) {
                     if (const auto p = weak.lock()) {
                       if (leader_ == p->channel) leader_is_gone();
                       peers_.erase(p->channel.get());
                     }
                   }});
}

/// The first message says who speaks, and with that what else may come.
void Agent::hear(const std::shared_ptr<Peer>& peer, std::string_view line) {
  std::string why;
  const auto hear_as = [&]<class Heard>(std::type_identity<Heard>, const auto& take) {
    if (const auto message = decode<Heard>(line, why)) return take(*message);
    if (std::exchange(peer->refused, why) == why) return;  // a rank may repeat it ten times a second
    log::warn("a message of {} was refused: {}",
              peer->hello.rank < 0 ? "a connection" : fmt::format("rank {}", peer->hello.rank), why);
  };
  if (!peer->known)
    return hear_as(std::type_identity<Hello>(), [&](const Hello& hello) {
      const auto rank = peer->channel->proved_rank();
      const bool speaks_for_itself =
          hello.role == Hello::Role::rank && rank == RankId{hello.rank, hello.attempt};
      if (rank && !speaks_for_itself) {
        log::warn("rank {} of attempt {} speaks as somebody else, and is sent away", rank->rank,
                  rank->attempt);
        peers_.erase(peer->channel.get());
        return peer->channel->close();
      }
      peer->known = true;
      peer->hello = hello;
      on_hello(peer, hello);
    });
  switch (peer->hello.role) {
    case Hello::Role::leader:
      if (peer->channel != leader_) return;
      return hear_as(std::type_identity<LeaderToAgent>(), [&](const auto& message) { from_leader(message); });
    case Hello::Role::rank:
      return hear_as(std::type_identity<RankToAgent>(),
                     [&](const auto& message) { from_rank(peer, message); });
    case Hello::Role::pmix:
      return hear_as(std::type_identity<PmixToAgent>(), [&](const auto& message) { from_pmix(message); });
    case Hello::Role::caller:
      return hear_as(std::type_identity<CallerToAgent>(),
                     [&](const auto& message) { from_caller(peer, message); });
    case Hello::Role::job_monitor:
      return hear_as(std::type_identity<Drain>(), [&](const Drain& asked) { request_drain(asked); });
    case Hello::Role::candidate:
      return;  // has its answer
  }
}

void Agent::on_hello(const std::shared_ptr<Peer>& peer, const Hello& hello) {
  switch (hello.role) {
    case Hello::Role::leader:
      return accept_leader(peer, hello);
    case Hello::Role::candidate:
      return answer_candidate(peer->channel, hello);
    case Hello::Role::rank:
      return accept_rank(peer, hello);
    case Hello::Role::pmix:
      if (admit(peer)) pmix_ = peer->channel;
      return;
    case Hello::Role::job_monitor:
    case Hello::Role::caller:
      return;
  }
}

void Agent::accept_leader(const std::shared_ptr<Peer>& peer, const Hello& hello) {
  if (!candidate_.accept_leader(hello.term)) {
    peers_.erase(peer->channel.get());
    return peer->channel->close();
  }
  if (hello.term != std::exchange(followed_, hello.term)) {
    log::info("{} leads, term {}", hello.node, hello.term);
    remember_term(scratch_, hello.term);
  }
  if (leader_) {
    peers_.erase(leader_.get());
    leader_->close();
  }
  leader_ = peer->channel;
  tell_leader(beat());
  for (const auto& message : votes_.all()) tell_leader(message);  // before the end of a rank ends the attempt
  for (const auto& message : ranks_.state_messages()) tell_leader(message);
  for (const auto& part : messages_of(signs_->standing())) tell_leader(part);
  if (drain_request_) tell_leader(*drain_request_);
  tell_pmix(PmixRepeat{});
}

void Agent::answer_candidate(const ChannelPtr& channel, const Hello& hello) {
  channel->send(encode(leadership_.answer(hello.term, loop_.steady_seconds())));
}

/// False: it belongs to an attempt that is over, and is ended.
bool Agent::admit(const std::shared_ptr<Peer>& peer) {
  const Hello& hello = peer->hello;
  const auto fence = leadership_.admit(hello.attempt);
  if (fence == LeadershipState::Fence::newer) forget_drain();
  if (fence != LeadershipState::Fence::refuse) return true;
  log::warn("{} of attempt {} is fenced: this is attempt {}",
            hello.rank < 0 ? "a PMIx server" : fmt::format("rank {}", hello.rank), hello.attempt,
            leadership_.attempt());
  end_older(leadership_.attempt(), SIGKILL, pmix_end_signal(), false);
  peers_.erase(peer->channel.get());
  peer->channel->close();
  return false;
}

void Agent::accept_rank(const std::shared_ptr<Peer>& peer, const Hello& hello) {
  if (!admit(peer)) return;
  LocalRank& rank = ranks_.at(hello.rank, hello.attempt);
  Claim found = Claim::other;
  try {
    const auto seen = peer->channel->peer();
    const auto facts = seen ? system_.process(*seen) : std::nullopt;
    peer->process =
        seen ? ProcessId{*seen, facts ? facts->started : 0} : ProcessId{-static_cast<pid_t>(hello.pid), 0};
    const auto look_up = [this](pid_t pid) { return system_.process(pid); };
    if (!rank.ended) found = claim(peer->process, rank.speaker, rank.linked(), look_up);
  } catch (const Error& error) {  // it connects again
    log::warn("it is not known which process speaks for rank {}: {}", rank.rank, error.what());
    peers_.erase(peer->channel.get());
    return peer->channel->close();
  }
  const int speaker = rank.speaker ? std::abs(rank.speaker->pid) : 0;
  if (found != Claim::speaks)
    return silence(
        *peer, rank,
        found == Claim::child
            ? fmt::format("this process, {}, is a child of process {}, which speaks for rank {}", hello.pid,
                          speaker, rank.rank)
            : fmt::format("this process, {}, does not speak for rank {}: {}", hello.pid, rank.rank,
                          rank.ended ? "its process has ended" : fmt::format("process {} does", speaker)));
  const auto before = std::exchange(rank.speaker, peer->process);
  if (before && *before != peer->process) silence_others(rank);
  rank.link = peer->channel;
  if (drain_) peer->channel->send(encode(*drain_));
  if (paused_) peer->channel->send(encode(Pause{true}));
}

/// A client of an older release does not know the message; what it says is passed over.
void Agent::silence(Peer& peer, LocalRank& rank, const std::string& why) {
  peer.mute = true;
  const bool told = std::exchange(rank.told_others, true);  // there may be many workers, and more each epoch
  if (!told) log::info("rank {}: {}; what it says is not heard", rank.rank, why);
  peer.channel->send(encode(NotSpeaker{told ? "" : why + "; what it calls of the client does nothing"}));
}

/// A parent has opened the client after its worker, or what spoke for the rank before has ended: what it said
/// last is not the rank's.
void Agent::silence_others(LocalRank& rank) {
  rank.restored.reset(), rank.doubt.reset(), rank.finished.reset(), rank.failed.reset();
  rank.heard_orders.clear();
  for (const auto& [channel, peer] : peers_)
    if (peer->hello.role == Hello::Role::rank && !peer->mute && peer->hello.rank == rank.rank &&
        peer->hello.attempt == rank.attempt && peer->process != *rank.speaker)
      silence(*peer, rank,
              fmt::format("this process, {}, is a child of process {}, which speaks for rank {}",
                          peer->hello.pid, std::abs(rank.speaker->pid), rank.rank));
}

}  // namespace holdfast::launcher

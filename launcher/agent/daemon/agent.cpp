// An agent from its start to its end.
//
// It takes the lock of the scratch folder, so that there is one agent on a node, adopts the ranks that an
// agent before it has started, and listens to two sockets: TCP for other nodes, a Unix socket for this one. A
// connection is nobody's until its hello has been heard and admitted; then it belongs to the part that serves
// its role, or is refused with a reason and closed. One timer tells the guardian that this process lives,
// another watches for a leader that is silent. The agent leaves when RankEnder has ended all ranks; no rank
// is started from then on.
#include "launcher/agent/daemon/agent.hpp"

#include <fmt/format.h>

#include "launcher/agent/daemon/agent_port.hpp"
#include "launcher/agent/daemon/inject.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis watch_period{100};
constexpr Millis alive_period{500};
constexpr Millis answer_time{100};  // to send the answer before a fault ends or stops this agent
}  // namespace

Agent::Agent(Loop& loop, NodeSystem& system, std::shared_ptr<slurm::Cluster> slurm, AgentInput in,
             std::function<void(int)> ended)
    : in_(std::move(in)),
      ended_(std::move(ended)),
      candidate_(loop, in_.run, in_.roster, in_.config, in_.secret, slurm,
                 in_.roster.node_called(in_.scratch.node), known_term(in_.scratch, in_.run),
                 [this](int code) { ender_.leave(code); }),
      tcp_(listen_for_agents(loop, in_.run, in_.roster.nodes[in_.roster.node_called(in_.scratch.node)],
                             in_.secret, [this](ChannelPtr channel) { accept(std::move(channel)); })),
      here_{.loop = loop,
            .system = system,
            .in = in_,
            .slurm = std::move(slurm),
            .leadership = candidate_.leadership(),
            .tell_leader = [this](const Message& message) { link_.tell(message); },
            .renew_scratch = [this] { renew_scratch(); }},
      ender_(here_, {.request_drain = [this](const Drain& what) { link_.request_drain(what); },
                     .leaving = [this] { leaving(); },
                     .left = [this](int code) { left(code); }}),
      keeper_(here_, ender_),
      starter_(here_, keeper_),
      ranks_(here_, keeper_),
      link_(here_, starter_, keeper_, ender_) {
  open_scratch();
  adopt_what_runs();
  starter_.warm_up();
  alive_timer_ = loop.every(alive_period, [this] { here_.system.tell_guardian(false); });
  watch_timer_ = loop.every(watch_period, [this] { candidate_.watch(); });
}

void Agent::open_scratch() {
  files::make_private_folder(in_.scratch.folder);
  if (!in_.local_level.empty()) files::make_private_folder(in_.local_level);
  claim_ = claim_scratch(in_.scratch, in_.run, in_.local_level);
  local_.reset();  // its path is free for the next one
  local_ = here_.loop.listen(
      {in_.scratch.socket(), in_.secret, [this](ChannelPtr channel) { accept(std::move(channel)); }});
}

/// The scratch folder may have been removed: systemd-logind removes it from /dev/shm when the user's last
/// session on the node ends.
void Agent::renew_scratch() {
  std::error_code unknown;
  const Scratch& scratch = in_.scratch;
  if (files::fs::exists(scratch.socket(), unknown) && files::fs::exists(scratch.claim(), unknown)) return;
  log::warn("{} is incomplete and is created again", scratch.folder.string());
  open_scratch();
}

/// Processes that an earlier agent of this node left running show which attempt is live.
void Agent::adopt_what_runs() {
  auto running = here_.system.processes(false);
  std::erase_if(running, [](const RunProcess& p) { return p.attempt == waiting_attempt; });  // no attempt yet
  const auto records = rank_records(in_.scratch);
  for (const auto& p : running) here_.leadership.admit(p.attempt);
  for (const auto& r : records) here_.leadership.admit(r.attempt);
  std::erase_if(running, [this](const RunProcess& p) { return p.attempt != here_.attempt(); });
  keeper_.adopt(records, running);
  starter_.adopt(running);
}

void Agent::leaving() {
  alive_timer_.reset();
  watch_timer_.reset();
  link_.fall_silent();
  candidate_.give_up_election();
  starter_.start_no_more();
}

void Agent::left(int code) {
  claim_.reset();
  if (remove_scratch(in_.scratch)) remove_local_level(in_.local_level);
  ended_(code);
}

// --- incoming connections ---

void Agent::accept(ChannelPtr channel) {
  const auto peer = peers_[channel.get()] = std::make_shared<Peer>(Peer{channel});
  const std::weak_ptr<Peer> weak = peer;
  channel->handle({nullptr,
                   [this, weak](std::string_view line) {
                     if (const auto p = weak.lock()) hear(*p, line);
                   },
                   [this, weak](const std::string&) {
                     if (const auto p = weak.lock()) closed(p->channel);
                   }});
}

void Agent::closed(const ChannelPtr& channel) {
  if (link_.channel() == channel) link_.lost();
  ranks_.closed(*channel);
  peers_.erase(channel.get());
}

void Agent::send_away(const ChannelPtr& channel) {
  peers_.erase(channel.get());
  channel->close();
}

/// The first message says who speaks, and with that what else may come.
void Agent::hear(Peer& peer, std::string_view line) {
  std::string why;
  const auto hear_as = [&]<class Heard>(std::type_identity<Heard>, const auto& take) {
    if (const auto message = decode<Heard>(line, why)) return take(*message);
    if (std::exchange(peer.refused, why) == why) return;  // a rank may repeat it ten times a second
    log::warn("a message of {} was refused: {}",
              peer.hello.rank < 0 ? "a connection" : fmt::format("rank {}", peer.hello.rank), why);
  };
  if (!peer.known)
    return hear_as(std::type_identity<Hello>(), [&](const Hello& hello) {
      const auto rank = peer.channel->proved_rank();
      if (rank && (hello.role != Hello::Role::rank || *rank != RankId{hello.rank, hello.attempt})) {
        log::warn("rank {} of attempt {} speaks as somebody else, and is sent away", rank->rank,
                  rank->attempt);
        return send_away(peer.channel);
      }
      peer.known = true;
      peer.hello = hello;
      on_hello(peer);
    });
  switch (peer.hello.role) {
    case Hello::Role::leader:
      if (peer.channel != link_.channel()) return;
      return hear_as(std::type_identity<LeaderToAgent>(), [&](const auto& message) { link_.hear(message); });
    case Hello::Role::rank:
      return hear_as(std::type_identity<RankToAgent>(),
                     [&](const auto& message) { ranks_.hear(*peer.channel, message); });
    case Hello::Role::pmix:
      return hear_as(std::type_identity<PmixToAgent>(), [&](const auto& message) { starter_.hear(message); });
    case Hello::Role::caller:
      return hear_as(std::type_identity<CallerToAgent>(),
                     [&](const auto& message) { from_caller(peer, message); });
    case Hello::Role::job_monitor:
      return hear_as(std::type_identity<Drain>(), [&](const Drain& asked) { link_.request_drain(asked); });
    case Hello::Role::candidate:
      return;  // has its answer
  }
}

void Agent::on_hello(const Peer& peer) {
  const Hello& hello = peer.hello;
  const ChannelPtr& channel = peer.channel;
  switch (hello.role) {
    case Hello::Role::leader:
      if (!candidate_.accept_leader(hello.term)) return send_away(channel);
      if (const ChannelPtr before = link_.channel()) send_away(before);
      return link_.follow(channel, hello);
    case Hello::Role::candidate:
      return channel->send(encode(here_.leadership.answer(hello.term, here_.loop.steady_seconds())));
    case Hello::Role::rank:
      if (admit(peer) && !ranks_.accept(channel, hello)) send_away(channel);
      return;
    case Hello::Role::pmix:
      if (admit(peer)) starter_.pmix_connected(channel);
      return;
    case Hello::Role::job_monitor:
    case Hello::Role::caller:
      return;
  }
}

/// False: it belongs to an attempt that is over, and is ended.
bool Agent::admit(const Peer& peer) {
  const Hello& hello = peer.hello;
  if (keeper_.admit(hello.attempt) != LeadershipState::Fence::refuse) return true;
  log::warn("{} of attempt {} is fenced: this is attempt {}",
            hello.rank < 0 ? "a PMIx server" : fmt::format("rank {}", hello.rank), hello.attempt,
            here_.attempt());
  ender_.kill_older_attempts();
  send_away(peer.channel);
  return false;
}

// --- messages of callers ---

void Agent::from_caller(const Peer& peer, const CallerToAgent& message) {
  std::visit(Overloaded{
                 [&](const Order& order) { link_.pass_on(order, peer.channel); },
                 [&](const Inject& fault) {
                   const std::string why_not = inject_fault(fault);
                   if (why_not.empty()) log::warn("drill: {} on rank {}", fault.fault, fault.rank);
                   peer.channel->send(encode(OrderTaken{"", why_not.empty(), why_not}));
                 },
             },
             message);
}

/// Returns the reason for a refusal; "": the fault is injected now or in a moment.
std::string Agent::inject_fault(const Inject& fault) {
  if (!in_.config.drill.allowed) return "drill.allowed is not set for this run";
  LocalRank* rank = nullptr;
  if (fault.rank >= 0) {
    rank = here_.ranks.find(fault.rank, here_.attempt());
    if (!rank || rank->ended || rank->pid <= 0)
      return fmt::format("rank {} does not live on {}", fault.rank, here_.node());
  }
  if (const auto agent_fault = agent_fault_called(fault.fault)) {
    if (agent_fault->at_rank && !rank) return fault.fault + " needs a rank";
    if (agent_fault->sign) {
      Sign sign = *agent_fault->sign;
      sign.rank = fault.rank;
      sign.attempt = here_.attempt();
      link_.tell(NodeSigns{{sign}});
    }
    if (agent_fault->at_rank)
      return here_.system.signal(rank->pid, agent_fault->signal) ? "" : "the rank's process is gone";
    injected_ = here_.loop.after(answer_time, [this, fault] { here_.system.inject(fault); });
    return "";
  }
  if (!rank) return "there is no fault " + fault.fault + " of a node";
  if (!rank->linked()) return fmt::format("rank {} is not connected", fault.rank);
  rank->link->send(encode(fault));
  return "";
}

}  // namespace holdfast::launcher

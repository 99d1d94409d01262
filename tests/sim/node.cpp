#include "tests/sim/node.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using launcher::LeadershipState;

namespace {
constexpr double watch_s = 0.2, look_s = 1, storage_patience_s = 2;
}

Agent::Agent(World& world, Node& node)
    : process(std::make_shared<Process>(node.number())),
      world_(world),
      node_(node),
      loop_(world, process),
      candidate_(loop_, world.storage.run, world.roster, world.config, world.secret, world.slurm,
                 node.number(), node.term > 0 ? node.term : world.storage.highest(),
                 [this](int) { finish(); }),
      leadership_(candidate_.leadership()) {
  door_ = std::make_shared<Network::Door>(process, [this](const ConnectionPtr& c) { accept(c); });
  world.network.listen("", door_);
  for (const auto& rank : node.ranks)
    if (rank->process->alive) leadership_.admit(rank->attempt.number);
  const double beat_s = 1e-3 * world.config.supervise.heartbeat_ms;
  const auto often = [&](double period, std::function<void()> what) {
    every(world.timeline, process, period, world.random.between(0, period), [this, what] {
      if (!left) what();
      return !left;
    });
  };
  often(beat_s, [this] { tell_leader(beat()); });
  often(watch_s, [this] { candidate_.watch(); });
  often(look_s, [this] { look_at_storage(); });
}

Agent::~Agent() = default;

void Agent::accept(const ConnectionPtr& c) {
  c->ends[1].message = [this, weak = std::weak_ptr(c)](const std::string& line) {
    const auto connection = weak.lock();
    if (!connection || left) return;
    std::string why;
    if (connection != leader_) {
      if (const auto h = decode<Hello>(line, why)) hello(connection, *h);
    } else if (const auto m = decode<LeaderToAgent>(line, why)) {
      from_leader(*m);
    } else {
      world_.expect(false, "an agent understands its leader (" + why + ")");
    }
  };
  c->ends[1].closed = [this, weak = std::weak_ptr(c)] {
    if (leader_ && leader_ == weak.lock()) leader_.reset(), leadership_.leader_lost();
  };
}

void Agent::hello(const ConnectionPtr& c, const Hello& h) {
  if (h.role == Hello::Role::candidate) return send(c, leadership_.answer(h.term, world_.timeline.now));
  if (h.role != Hello::Role::leader) return;
  const int before = leadership_.term();
  if (!candidate_.accept_leader(h.term) && world_.bug != Bug::lower_leader) return world_.network.close(c, 1);
  world_.expect(h.term >= before, "an agent follows no leader of a lower term");
  node_.term = h.term;
  if (leader_) world_.network.close(leader_, 1);
  leader_ = c;
  tell_leader(beat());
  for (const auto& votes : votes_.all()) tell_leader(votes);
  for (const auto& [number, known] : ranks_) {
    const Rank& r = *known.rank;
    if (known.started) tell_leader(RankStarted{number, r.attempt.number, 1});
    if (r.restored) tell_leader(*r.restored);
    if (r.finished) tell_leader(*r.finished);
    if (known.failed) tell_leader(*known.failed);
    if (known.exited) tell_leader(*known.exited);
  }
  if (storage_silent_) tell_leader(NodeSigns{{{"shared_gone", -1, 0, 0, "shared"}}});
  if (drain_request_) tell_leader(*drain_request_);
}

void Agent::send(const ConnectionPtr& connection, const Message& message) {
  world_.network.send(connection, 1, std::make_shared<const std::string>(encode(message)));
}

void Agent::tell_leader(const Message& message) {
  if (leader_) send(leader_, message);
}

Beat Agent::beat() const {
  Beat b{world_.name(node_.number()), leadership_.attempt(), {}};
  for (const auto& [number, known] : ranks_)
    if (known.rank->attempt.number == b.attempt && known.started && !known.ended)
      b.ranks.push_back({number, b.attempt, known.rank->step, known.rank->phase});
  return b;
}

/// A file system that does not answer blocks the thread that asks it.
void Agent::look_at_storage() {
  const double now = world_.timeline.now;
  if (world_.storage.takes(node_.number(), now) <= 0)
    storage_hangs_since_ = -1;
  else if (storage_hangs_since_ < 0)
    storage_hangs_since_ = now;
  if (!leader_) return;
  const bool silent = storage_hangs_since_ >= 0 && now - storage_hangs_since_ > storage_patience_s;
  if (silent != std::exchange(storage_silent_, silent))
    tell_leader(NodeSigns{{{silent ? "shared_gone" : "shared_back", -1, 0, 0, "shared"}}});
}

void Agent::from_leader(const LeaderToAgent& message) {
  leadership_.leader_spoke(world_.timeline.now);
  if (const auto* order = std::get_if<Clear>(&message)) return clear(order->attempt);
  if (const auto* order = std::get_if<StartRanks>(&message)) return start_ranks(*order);
  if (const auto* outcome = std::get_if<CommitOutcome>(&message)) {
    votes_.settled(outcome->attempt, outcome->step);
    for (auto& [number, known] : ranks_)
      if (known.rank->attempt.number == outcome->attempt)
        world_.training->commit_outcome(*known.rank, *outcome);
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    drain_ = *drain;
    for (auto& [number, known] : ranks_)
      if (known.rank->attempt.number == leadership_.attempt()) {
        known.rank->drain_heard = true;
        known.rank->stop_heard = known.rank->stop_heard || drain->stop;
      }
  } else if (const auto* pause = std::get_if<Pause>(&message)) {
    paused_ = pause->on;
    for (auto& [number, known] : ranks_) known.rank->pause_heard = paused_;
  } else if (std::holds_alternative<CheckNode>(message)) {
    tell_leader(NodeHealth{NodeHealth::Fitness::ok, "", ""});
  } else if (const auto* dump = std::get_if<DumpStacks>(&message)) {
    tell_leader(Stacks{dump->attempt, dump->rank, "#0"});
  } else if (std::holds_alternative<Finish>(message)) {
    finish();
  }
}

void Agent::finish() {
  left = true;
  node_.clears = true;
  node_.kill_older(INT32_MAX);
  candidate_.give_up_election();
  world_.agent_is_gone(*this);
  process->alive = false;
  world_.network.process_died(process);
  world_.agent_left();
}

void Agent::clear(int attempt) {
  const auto fence = leadership_.admit(attempt);
  if (fence == LeadershipState::Fence::refuse) return;
  if (fence == LeadershipState::Fence::newer) drain_.reset();
  std::erase_if(ranks_, [&](const auto& r) { return r.second.rank->attempt.number < attempt; });
  votes_.forget_older(attempt);
  clearing_ = attempt;
  clear_on();
}

void Agent::clear_on() {
  if (node_.kill_older(clearing_) || world_.bug == Bug::cleared_early) return tell_leader(Cleared{clearing_});
  world_.timeline.after(0.1, [this, p = process] { run(p, [this] { clear_on(); }); });
}

/// A PMIx server comes first, and takes its time.
void Agent::start_ranks(const StartRanks& order) {
  const AttemptKey key{order.attempt, order.term};
  if (order.attempt != leadership_.attempt() || !node_.starts || starting_ == order.attempt) return;
  starting_ = order.attempt;
  world_.timeline.after(world_.random.between(0.02, 0.3), [this, p = process, key, order] {
    run(p, [this, key, order] {
      if (key.number != leadership_.attempt()) return;
      for (int i = 0; i < order.ranks_per_node; ++i) {
        const int number = order.slot * order.ranks_per_node + i;
        // It may be one that an agent before this one has started.
        if (std::any_of(node_.ranks.begin(), node_.ranks.end(), [&](const RankPtr& r) {
              return r->rank == number && r->attempt.number == key.number;
            }))
          continue;
        const auto rank =
            world_.training->start(key, number, node_.number(), static_cast<int>(order.nodes.size()),
                                   order.ranks_per_node, order.trusted_step);
        node_.ranks.push_back(rank);
        rank_is_here(rank);
      }
    });
  });
}

void Agent::rank_is_here(const RankPtr& rank) {
  const auto fence = leadership_.admit(rank->attempt.number);
  if (fence == LeadershipState::Fence::refuse) return void(node_.kill_older(leadership_.attempt()));
  if (fence == LeadershipState::Fence::newer) drain_.reset();
  Known& known = ranks_[rank->rank];
  known = Known{rank, true, false, std::nullopt, std::nullopt};
  if (drain_) {
    rank->drain_heard = true;
    rank->stop_heard = drain_->stop;
  }
  rank->pause_heard = paused_;
  tell_leader(RankStarted{rank->rank, rank->attempt.number, 1});
}

void Agent::rank_says(const RankPtr& rank, const Message& what) {
  const auto it = ranks_.find(rank->rank);
  if (it == ranks_.end() || it->second.rank != rank) return;
  const auto* vote = std::get_if<RankVote>(&what);
  if (!vote) return tell_leader(what);
  const auto living = std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& known) {
    return known.second.rank->attempt.number == vote->attempt && !known.second.ended;
  });
  const auto tell = [this, attempt = vote->attempt, step = vote->step] {
    for (const auto& votes : votes_.untold(attempt, step)) tell_leader(votes);
  };
  if (votes_.take(*vote, as_size(living))) return tell();
  world_.timeline.after(1e-3 * static_cast<double>(launcher::vote_patience.count()),
                        [this, p = process, tell] { run(p, tell); });
}

void Agent::rank_ended(const RankPtr& rank, int status) {
  const auto it = ranks_.find(rank->rank);
  if (it == ranks_.end() || it->second.rank != rank || it->second.ended) return;
  it->second.ended = true;
  it->second.exited = RankExited{rank->rank, rank->attempt.number, status};
  tell_leader(*it->second.exited);
}

void Agent::request_drain(const Drain& what) {
  if (!drain_request_ || !drain_request_->stop) drain_request_ = what;
  tell_leader(*drain_request_);
}

// --- the node ---

void Node::start_agent() {
  if (!powered || (agent && agent->process->alive)) return;
  if (agent) dead_.push_back(std::move(agent));
  agent = std::make_unique<Agent>(world_, *this);
  // Ranks that are still alive connect again by themselves.
  for (const auto& rank : ranks)
    if (rank->process->alive)
      world_.timeline.after(world_.random.between(0.05, 0.5), [this, rank] {
        if (!agent || !agent->process->alive || !rank->process->alive) return;
        run(agent->process, [this, rank] {
          if (!rank->process->alive) return;
          agent->rank_is_here(rank);
          for (const auto& [step, vote] : rank->votes) agent->rank_says(rank, vote);
          if (rank->last_word) rank_would_end(rank);
        });
      });
}

void Node::agent_dies() {
  if (!agent || !agent->process->alive) return;
  agent->process->alive = false;
  world_.agent_is_gone(*agent);
  world_.network.process_died(agent->process);
  world_.timeline.after(world_.random.between(0.2, 1), [this] {
    if (agent && !agent->left) start_agent();
  });
}

void Node::power_off() {
  if (!powered) return;
  powered = false;
  world_.network.power(number_, false);
  if (agent) {
    agent->process->alive = false;
    world_.agent_is_gone(*agent);
  }
  for (const auto& rank : ranks) rank->process->alive = false;
  ranks.clear();
  local.clear();
  term = 0;
}

void Node::power_on() {
  if (powered) return;
  powered = true;
  clears = starts = true;
  world_.network.power(number_, true);
  if (agent) world_.network.process_died(agent->process);
  if (!agent || !agent->left) start_agent();
}

bool Node::kill_older(int attempt) {
  const auto old = [&](const AttemptKey& key) { return key.number < attempt; };
  if (!clears) {
    for (const auto& rank : ranks)
      if (old(rank->attempt) && rank->process->alive) return false;
  }
  const auto all = ranks;
  for (const auto& rank : all)
    if (old(rank->attempt)) world_.training->end(rank, 137, true);
  std::erase_if(ranks, [&](const auto& r) { return old(r->attempt); });
  return true;
}

void Node::rank_says(const RankPtr& rank, const Message& what) {
  if (agent && agent->process->alive)
    run(agent->process, [this, rank, what] { agent->rank_says(rank, what); });
}

/// A rank waits until its last message is received, for which the agent must know the rank.
void Node::rank_would_end(const RankPtr& rank) {
  if (!agent || !agent->process->alive) return;
  run(agent->process, [this, rank] {
    if (rank->finished) agent->rank_says(rank, *rank->finished);
    world_.training->taken(rank);
  });
}

void Node::rank_ended(const RankPtr& rank, int status) {
  if (agent && agent->process->alive)
    run(agent->process, [this, rank, status] { agent->rank_ended(rank, status); });
}

}  // namespace holdfast::sim

#include "tests/sim/node.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/agent/leader/election_count.hpp"
#include "src/base/as_size.hpp"
#include "tests/sim/lead.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using launcher::ElectionCount;
using launcher::LeadershipState;

namespace {
constexpr double election_limit_s = 1, watch_s = 0.2, slurm_ping_s = 0.05, begin_limit_s = 20;

LeadershipState leadership_of(const World& world, int node) {
  const auto& order = world.roster.candidates;
  const auto place = std::find(order.begin(), order.end(), node);
  return {place == order.end() ? -1 : static_cast<int>(place - order.begin()),
          {1e-3 * world.limits.leader_silence_ms, 0.5, 8},
          world.storage.highest(),
          0,
          world.timeline.now};
}
}  // namespace

struct Agent::Election {
  ElectionCount answers;
  std::vector<bool> lost;
  std::set<int> granted;
  int term;
  std::vector<ConnectionPtr> lines;
  bool over = false;
  /// An independent count: half of the nodes that are not lost.
  bool fair() const {
    return 2 * static_cast<int>(granted.size()) >=
           static_cast<int>(std::count(lost.begin(), lost.end(), false));
  }
};

Agent::Agent(World& world, Node& node)
    : process(std::make_shared<Process>(node.number())),
      leadership(leadership_of(world, node.number())),
      world_(world),
      node_(node) {
  for (const auto& rank : node.ranks)
    if (rank->process->alive) leadership.admit(rank->attempt.number);
  const double beat_s = 1e-3 * world.limits.heartbeat_ms;
  every(world.timeline, process, beat_s, world.random.between(0, beat_s), [this] {
    if (left) return false;
    tell_leader(beat());
    return true;
  });
  every(world.timeline, process, watch_s, world.random.between(0, watch_s), [this] {
    if (left) return false;
    watch_leader();
    return true;
  });
}

Agent::~Agent() = default;

void Agent::accept(const ConnectionPtr& c) {
  c->ends[1].message = [this, weak = std::weak_ptr(c)](const Message& m) {
    const auto connection = weak.lock();
    if (!connection || left) return;
    if (connection == leader_) return from_leader(m);
    if (const auto* h = std::get_if<Hello>(&m)) hello(connection, *h);
  };
  c->ends[1].closed = [this, weak = std::weak_ptr(c)] {
    if (leader_ && leader_ == weak.lock()) leader_.reset(), leadership.leader_lost();
  };
}

void Agent::hello(const ConnectionPtr& c, const Hello& h) {
  const double now = world_.timeline.now;
  if (h.role == Hello::Role::candidate)
    return world_.network.send(c, 1, Message(leadership.answer(h.term, now)));
  if (h.role != Hello::Role::leader) return;
  const int before = leadership.term();
  if (!leadership.accept_leader(h.term, now) && world_.bug != Bug::lower_leader)
    return world_.network.close(c, 1);
  world_.expect(h.term >= before, "an agent follows no leader of a lower term");
  if (!leadership.leads() && leading) leading.reset();
  election_.reset();
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
  if (drain_request_) tell_leader(*drain_request_);
}

void Agent::tell_leader(const Message& message) {
  if (leader_) world_.network.send(leader_, 1, message);
}

Beat Agent::beat() const {
  Beat b{world_.name(node_.number()), leadership.attempt(), {}};
  for (const auto& [number, known] : ranks_)
    if (known.rank->attempt.number == b.attempt && known.started && !known.ended)
      b.ranks.push_back({number, b.attempt, known.rank->step, known.rank->phase});
  return b;
}

void Agent::from_leader(const Message& message) {
  leadership.leader_spoke(world_.timeline.now);
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
      if (known.rank->attempt.number == leadership.attempt()) {
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
  leading.reset();
  process->alive = false;
  world_.network.process_died(process);
  world_.agent_left();
}

void Agent::clear(int attempt) {
  const auto fence = leadership.admit(attempt);
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
  if (order.attempt != leadership.attempt() || !node_.starts || starting_ == order.attempt) return;
  starting_ = order.attempt;
  world_.timeline.after(world_.random.between(0.02, 0.3), [this, p = process, key, order] {
    run(p, [this, key, order] {
      if (key.number != leadership.attempt()) return;
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
  const auto fence = leadership.admit(rank->attempt.number);
  if (fence == LeadershipState::Fence::refuse) return void(node_.kill_older(leadership.attempt()));
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

OrderTaken Agent::order(const Order& what) {
  if (leading) return leading->order(what);
  return {what.id, false, "nobody leads here"};
}

// --- leadership ---

void Agent::watch_leader() {
  if (reading_record_ || !leadership.should_start_election(world_.timeline.now)) return;
  reading_record_ = true;
  world_.when_storage_answers(process, [this] {
    reading_record_ = false;
    if (!left && leadership.should_start_election(world_.timeline.now)) start_election();
  });
}

void Agent::start_election() {
  if (!world_.storage.reachable(node_.number())) return;
  const int asked = leadership.begin_election(world_.storage.highest(), world_.storage.highest_taken());
  const auto lost = world_.storage.replay().lost;
  std::vector<bool> out;
  for (const auto& n : world_.roster.nodes) out.push_back(lost.contains(n.name));
  election_ = std::make_unique<Election>(
      Election{ElectionCount(out), out, {}, asked, std::vector<ConnectionPtr>(out.size())});
  const auto* const mine = election_.get();
  for (int n = 0; n < world_.node_count(); ++n)
    world_.network.dial(
        process, n, election_limit_s,
        [this, n, mine, asked](const ConnectionPtr& c) {
          if (election_.get() != mine || election_->term != asked) return world_.network.close(c, 0);
          election_->lines[n] = c;
          c->ends[0].message = [this, n, mine, asked](const Message& m) {
            if (election_.get() != mine || election_->term != asked || !std::holds_alternative<Answer>(m))
              return;
            const auto& answer = std::get<Answer>(m);
            election_->answers.answered(n, answer);
            if (answer.grant && !election_->lost[n]) election_->granted.insert(n);
            count(false);
          };
          world_.network.send(c, 0,
                              Message(Hello{Hello::Role::candidate, world_.name(node_.number()), asked}));
        },
        [] {});
  world_.timeline.after(election_limit_s, [this, asked, p = process] {
    run(p, [this, asked] {
      if (election_ && election_->term == asked) count(true);
    });
  });
}

void Agent::count(bool last_call) {
  if (!election_ || election_->over) return;
  const auto outcome = election_->answers.outcome(last_call);
  if (outcome == ElectionCount::Outcome::open) return;
  election_->over = true;
  bool elected = outcome != ElectionCount::Outcome::lost;
  if (outcome == ElectionCount::Outcome::ask_slurm) elected = world_.controller[node_.number()];
  // Meanwhile a leader may speak to this node again, which ends the election but not the call.
  world_.when_storage_answers(process, [this, elected, term = election_->term, fair = election_->fair()] {
    const bool won =
        elected && world_.storage.reachable(node_.number()) && world_.storage.terms.insert(term).second;
    world_.expect(!won || fair, "a leader has the votes of half of the agents");
    if (won) world_.term_taken(term, node_.number());
    world_.timeline.after(
        0, [this, won, term, p = process] { run(p, [this, won, term] { election_is_over(won, term); }); });
  });
}

void Agent::election_is_over(bool won, int term) {
  if (left) return;
  if (election_ && election_->term == term) {
    for (const auto& c : election_->lines)
      if (c) world_.network.close(c, 0);
    election_.reset();
  }
  auto& storage = world_.storage;
  const bool reachable = storage.reachable(node_.number());
  if (!won && reachable && storage.result &&
      launcher::code_of(storage.result->json, world_.roster.job, storage.highest()))
    return finish();
  const int highest = won ? term : reachable ? storage.highest() : 0;
  switch (leadership.election_over(won, highest, world_.timeline.now)) {
    case LeadershipState::After::leads:
      return lead(term);
    case LeadershipState::After::follows:
      return;
    case LeadershipState::After::renounces:
      if (reachable) world_.say(fmt::format("term {} is renounced", term)), storage.renounced.insert(term);
  }
}

void Agent::lead(int term) {
  const auto begins = [this, term] {
    return !left && !leading && leadership.leads() && leadership.term() == term;
  };
  if (world_.storage.takes(node_.number(), world_.timeline.now) > begin_limit_s)
    return world_.timeline.after(begin_limit_s, [this, begins, p = process] {
      run(p, [this, begins] {
        if (begins()) leadership.resigned(world_.timeline.now);
      });
    });
  world_.when_storage_answers(process, [this, begins, term] {
    if (!begins()) return;
    if (!world_.storage.reachable(node_.number())) return leadership.resigned(world_.timeline.now);
    leading = std::make_unique<Leader>(world_, process, term, leadership.last_heard());
  });
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
  bury_leader();
  world_.network.process_died(agent->process);
  world_.timeline.after(world_.random.between(0.2, 1), [this] {
    if (agent && !agent->left) start_agent();
  });
}

/// It may have died during its own work.
void Node::bury_leader() {
  world_.timeline.after(0, [dead = std::shared_ptr<Leader>(std::move(agent->leading))] {});
}

void Node::power_off() {
  if (!powered) return;
  powered = false;
  world_.network.power(number_, false);
  if (agent) {
    agent->process->alive = false;
    bury_leader();
  }
  for (const auto& rank : ranks) rank->process->alive = false;
  ranks.clear();
  local.clear();
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

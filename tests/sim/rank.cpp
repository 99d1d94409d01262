#include "tests/sim/rank.hpp"

#include <stdexcept>
#include <utility>

namespace holdfast::sim {

using namespace control;

namespace {
constexpr double redial_pause_s = 0.1, dial_limit_s = 2;
constexpr double beat_s =
    0.5;  // and at each move: the client sends five times as many, of which few say anything new
}  // namespace

// --- the connection ---

void Link::connect() {
  network_.dial(
      process_, process_->node, socket_, dial_limit_s,
      [weak = weak_from_this()](const ConnectionPtr& connection) {
        const auto self = weak.lock();
        if (!self) return;
        self->connection_ = connection;
        connection->ends[0].message = [weak](const std::string& line) {
          if (const auto link = weak.lock(); link && link->heard) link->heard(line);
        };
        connection->ends[0].closed = [weak] {
          if (const auto link = weak.lock()) link->lost();
        };
        self->opened();
      },
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->lost();
      });
}

void Link::lost() {
  connection_.reset();
  timeline_.after(redial_pause_s, [process = process_, weak = weak_from_this()] {
    run(process, [weak] {
      if (const auto self = weak.lock()) self->connect();
    });
  });
}

void Link::send(const Message& message) {
  if (connection_) network_.send(connection_, 0, std::make_shared<const std::string>(encode(message)));
}

// --- a rank ---

Rank::Rank(Timeline& timeline, Network& network, const RankEnv& at, ProcessPtr p, Hooks hooks)
    : rank(at.rank),
      attempt{at.attempt, at.term},
      node(p->node),
      process(std::move(p)),
      hooks_(std::move(hooks)),
      link_(std::make_shared<Link>(timeline, network, process, at.agent_socket.string())) {
  progress_.rank = rank;
  progress_.attempt = attempt.number;
  link_->opened = [this] { opened(); };
  link_->heard = [this](const std::string& line) { heard(line); };
  link_->connect();
  every(timeline, process, beat_s, beat_s, [this, weak = std::weak_ptr(link_)] {
    if (const auto link = weak.lock()) link->send(progress_);
    return true;
  });
}

void Rank::opened() {
  Hello hello;
  hello.role = Hello::Role::rank;
  hello.term = attempt.term;
  hello.attempt = attempt.number;
  hello.rank = rank;
  link_->send(hello);
  link_->send(progress_);
  if (restored_) link_->send(*restored_);
  for (const auto& [step, vote] : votes_) link_->send(vote);
  if (awaited_) link_->send(*awaited_);
}

void Rank::heard(const std::string& line) {
  std::string why;
  const auto message = decode<AgentToRank>(line, why);
  if (!message) throw std::runtime_error("a rank does not understand its agent: " + why);
  std::visit(Overloaded{
                 [&](const CommitOutcome& outcome) {
                   votes_.erase(outcome.step);
                   hooks_.commit_outcome(outcome);
                 },
                 [&](const Drain& drain) {
                   drain_heard = true;
                   stop_heard = stop_heard || drain.stop;
                   link_->send(RankHeard{rank, attempt.number,
                                         drain.stop ? RankHeard::What::stop : RankHeard::What::save});
                 },
                 [&](const Pause& pause) {
                   pause_heard = pause.on;
                   if (pause.on) link_->send(RankHeard{rank, attempt.number, RankHeard::What::pause});
                 },
                 [&](const Inject&) {},
                 [&](const NotSpeaker&) { throw std::runtime_error("a rank is not heard"); },
                 [&](const Taken&) {
                   if (std::exchange(awaited_, std::nullopt)) hooks_.taken();
                 },
             },
             *message);
}

void Rank::set_progress(std::int64_t step, Phase phase) {
  progress_.step = step;
  progress_.phase = phase;
  ++progress_.moves;
  link_->send(progress_);
}

void Rank::restored(const Restored& from) {
  restored_ = RankRestored{rank, attempt.number, from};
  link_->send(*restored_);
}

void Rank::vote(const RankVote& vote) {
  votes_[vote.step] = vote;
  link_->send(vote);
}

void Rank::say(const Message& awaited) {
  awaited_ = awaited;
  link_->send(awaited);
}

}  // namespace holdfast::sim

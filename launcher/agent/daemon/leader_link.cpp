#include "launcher/agent/daemon/leader_link.hpp"

#include <charconv>

#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

constexpr Millis signs_period{1000};

void remember_term(const Scratch& scratch, int term) {
  try {
    files::replace_atomically(scratch.term(), std::to_string(term));
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}

}  // namespace

int known_term(const Scratch& scratch, const RunDir& run) {
  if (!files::is_there(scratch.term())) return highest_valid_term(run);
  const std::string text = files::read_text(scratch.term());
  int term = 0;
  std::from_chars(text.data(), text.data() + text.size(), term);
  return term;
}

LeaderLink::LeaderLink(AgentHere& here, RankStarter& starter, RankKeeper& keeper, RankEnder& ender)
    : here_(here),
      starter_(starter),
      keeper_(keeper),
      ender_(ender),
      flights_(here.in.scratch.folder, here.in.config.supervise) {
  heartbeat_timer_ = here_.loop.every(Millis(here_.in.config.supervise.heartbeat_ms), [this] {
    tell(heartbeat());
    for (const auto& flight : flights_.report(here_.ranks, here_.attempt(), here_.loop.now())) tell(flight);
  });
  signs_timer_ = here_.loop.every(signs_period, [this] {
    if (!leader_) return;  // signs are kept until there is one
    for (const auto& part : messages_of(here_.signs.poll())) tell(part);
    look_outside();
  });
}

void LeaderLink::follow(ChannelPtr leader, const Hello& hello) {
  if (hello.term != std::exchange(followed_, hello.term)) {
    log::info("{} leads, term {}", hello.node, hello.term);
    remember_term(here_.in.scratch, hello.term);
  }
  leader_ = std::move(leader);
  tell(heartbeat());
  keeper_.tell_all();
  for (const auto& part : messages_of(here_.signs.standing())) tell(part);
  if (drain_request_) tell(*drain_request_);
  starter_.tell_pmix(PmixRepeat{});
}

/// Orders that it has may be recorded or not: callers give them again, with the same id.
void LeaderLink::lost() {
  leader_.reset();
  here_.leadership.leader_lost();
  for (auto& [id, caller] : std::exchange(callers_, {}))
    if (const auto channel = caller.lock())
      channel->send(encode(OrderTaken{id, false, "the leader has just been lost; try again", true}));
}

void LeaderLink::tell(const Message& message) const {
  if (leader_ && leader_->open()) leader_->send(encode(message));
}

Heartbeat LeaderLink::heartbeat() const {
  const int attempt = here_.attempt();
  const Mover* mover = here_.system.mover();
  return {here_.node(), attempt, here_.ranks.live(attempt), mover ? mover->copies_off() : ""};
}

void LeaderLink::look_outside() {
  const auto& [run, scratch] = std::tie(here_.in.run, here_.in.scratch);
  const int attempt = here_.attempt();
  if (here_.promises.always_reports() || here_.in.config.supervise.hang_outside_s <= 0) return;
  std::vector<WatchedRank> watched;
  for (const auto& [number, rank] : here_.ranks)
    if (rank.attempt == attempt && rank.started && !rank.ended && !rank.reports())
      watched.push_back(
          {number, spooled_path(scratch, run, rank_log(run, attempt, number)), scratch.heartbeat(number)});
  if (watched.empty()) return;
  if (std::exchange(life_attempt_, attempt) != attempt) life_.forget();
  life_.look_begins(here_.loop.steady_seconds());
  const auto report = [this, attempt](double now) {
    for (const auto& seen : life_.seen(attempt, now)) tell(seen);
  };
  const bool looks =
      here_.system.look_outside(attempt, watched, [this, attempt, report](const Growths& growths) {
        if (attempt != life_attempt_) return;
        life_.take(growths);
        report(growths.at);
      });
  if (looks) return;
  life_.cannot_look(watched, here_.loop.steady_seconds());
  report(here_.loop.steady_seconds());
}

void LeaderLink::hear(const LeaderToAgent& message) {
  using Fence = LeadershipState::Fence;
  here_.leadership.leader_spoke(here_.loop.steady_seconds());
  std::visit(Overloaded{
                 [](const LeaderHeartbeat&) {},
                 [&](const Clear& order) {
                   const auto fence = keeper_.admit(order.attempt);
                   if (fence == Fence::refuse) return;  // a late message of an older attempt
                   starter_.forget_older(order.attempt);
                   ender_.clear(order.attempt, fence == Fence::newer, keeper_.give_up_older(order.attempt));
                 },
                 [&](const FetchState& order) { starter_.fetch(order); },
                 [&](const StartRanks& order) { starter_.start(order); },
                 [&](const PmixFenced& m) { starter_.tell_pmix(m); },
                 [&](const PmixQuestion& m) { starter_.tell_pmix(m); },
                 [&](const PmixPublished& m) { starter_.tell_pmix(m); },
                 [&](const CommitOutcome& outcome) { keeper_.settled(outcome); },
                 [&](const Drain& order) { keeper_.pass_on(order); },
                 [&](const Pause& order) { keeper_.pass_on(order); },
                 [&](const CheckNode& m) {
                   here_.system.check(m.numerics, [this](const NodeHealth& health) { tell(health); });
                 },
                 [&](const DumpStacks& order) { keeper_.dump_stacks(order); },
                 [&](const OrderTaken& taken) { answer(taken); },
                 [&](const Finish& finish) { ender_.leave(finish.exit_code); },
             },
             message);
}

void LeaderLink::request_drain(const Drain& what) {
  if (!drain_request_ || !drain_request_->stop) drain_request_ = what;
  tell(*drain_request_);
}

void LeaderLink::pass_on(const Order& order, const ChannelPtr& caller) {
  if (!leader_ || !leader_->open())
    return caller->send(
        encode(OrderTaken{order.id, false, "no leader is known on " + here_.node() + "; try again", true}));
  callers_[order.id] = caller;
  tell(order);
}

void LeaderLink::answer(const OrderTaken& what) {
  const auto asked = callers_.find(what.id);
  if (asked == callers_.end()) return;
  if (const auto caller = asked->second.lock()) caller->send(encode(what));
  callers_.erase(asked);
}

}  // namespace holdfast::launcher

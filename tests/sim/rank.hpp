#pragma once
// The processes that an agent starts, as far as it hears of them: they connect to it, again when it is
// replaced, and speak as client/holdfast.c and launcher/pmix/pmix_relay.cpp do.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/rank_env.hpp"
#include "src/control/message.hpp"
#include "tests/sim/network.hpp"

namespace holdfast::sim {

struct AttemptKey {
  int number = 0, term = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

/// The connection of a process to the agent of its node.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(Timeline& timeline, Network& network, ProcessPtr process, std::string socket)
      : timeline_(timeline), network_(network), process_(std::move(process)), socket_(std::move(socket)) {}
  void connect();
  void send(const control::Message& message);
  std::function<void()> opened;
  std::function<void(const std::string& line)> heard;

 private:
  void lost();
  Timeline& timeline_;
  Network& network_;
  ProcessPtr process_;
  std::string socket_;
  ConnectionPtr connection_;
};

/// One process of a training program.
class Rank {
 public:
  /// What it hears, but for orders.
  struct Hooks {
    std::function<void(const control::CommitOutcome&)> commit_outcome;
    std::function<void()> taken;  ///< its agent has received what it waits for
  };
  Rank(Timeline& timeline, Network& network, const RankEnv& at, ProcessPtr process, Hooks hooks);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const int rank;
  const AttemptKey attempt;
  const int node;
  const ProcessPtr process;
  bool hung = false;
  bool fails = false;  ///< it has said so, and ends
  bool drain_heard = false, stop_heard = false, pause_heard = false;

  void set_progress(std::int64_t step, control::Phase phase);
  std::int64_t step() const { return progress_.step; }
  control::Phase phase() const { return progress_.phase; }
  void restored(const control::Restored& from);
  void vote(const control::RankVote& vote);
  /// Repeated until it is taken.
  void say(const control::Message& awaited);

 private:
  void opened();
  void heard(const std::string& line);

  Hooks hooks_;
  std::shared_ptr<Link> link_;
  control::RankProgress progress_;
  std::optional<control::RankRestored> restored_;
  std::map<std::int64_t, control::RankVote> votes_;  ///< without a commit outcome
  std::optional<control::Message> awaited_;
};
using RankPtr = std::shared_ptr<Rank>;

}  // namespace holdfast::sim

#include "launcher/agent/daemon/rank_peers.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

std::string is_child(int process, int speaker, int rank) {
  return fmt::format("this process, {}, is a child of process {}, which speaks for rank {}", process, speaker,
                     rank);
}

}  // namespace

bool RankPeers::accept(const ChannelPtr& channel, const Hello& hello) {
  LocalRank& rank = here_.ranks.at(hello.rank, hello.attempt);
  Peer peer{channel.get(), {hello.rank, hello.attempt}, static_cast<int>(hello.pid), {}};
  Claim found = Claim::other;
  try {
    const auto seen = channel->peer();
    const auto facts = seen ? here_.system.process(*seen) : std::nullopt;
    peer.process = seen ? ProcessId{*seen, facts ? facts->started : 0} : ProcessId{-peer.says_pid, 0};
    const auto look_up = [this](pid_t pid) { return here_.system.process(pid); };
    if (!rank.ended) found = claim(peer.process, rank.speaker, rank.linked(), look_up);
  } catch (const Error& error) {
    log::warn("it is not known which process speaks for rank {}: {}", rank.rank, error.what());
    return false;
  }
  Peer& known = peers_.insert_or_assign(channel.get(), peer).first->second;
  const int speaker = rank.speaker ? std::abs(rank.speaker->pid) : 0;
  if (found == Claim::child) {
    silence(known, rank, is_child(known.says_pid, speaker, rank.rank));
  } else if (found == Claim::other) {
    silence(known, rank,
            fmt::format("this process, {}, does not speak for rank {}: {}", known.says_pid, rank.rank,
                        rank.ended ? "its process has ended" : fmt::format("process {} does", speaker)));
  } else {
    const auto before = std::exchange(rank.speaker, known.process);
    if (before && *before != known.process) silence_others(rank);
    keeper_.connected(rank, channel);
  }
  return true;
}

/// A client of an older release waits for the answer.
void RankPeers::hear(Channel& from, const RankToAgent& message) {
  const auto peer = peers_.find(&from);
  if (peer == peers_.end()) return;
  const auto& [number, attempt] = peer->second.of;
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank) return;
  if (!peer->second.mute) return keeper_.hear(*rank, from, message);
  if (std::holds_alternative<RankFinished>(message) || std::holds_alternative<RankFailed>(message) ||
      std::holds_alternative<RankDoubt>(message))
    from.send(encode(Taken{}));
}

/// A client of an older release does not know the message; what it says is passed over.
void RankPeers::silence(Peer& peer, LocalRank& rank, const std::string& why) {
  peer.mute = true;
  const bool told = std::exchange(rank.told_others, true);  // there may be many workers, and more each epoch
  if (!told) log::info("rank {}: {}; what it says is not heard", rank.rank, why);
  peer.channel->send(encode(NotSpeaker{told ? "" : why + "; what it calls of the client does nothing"}));
}

/// A parent has opened the client after its worker, or what spoke for the rank before has ended: what it said
/// last is not the rank's.
void RankPeers::silence_others(LocalRank& rank) {
  rank.restored.reset(), rank.doubt.reset(), rank.finished.reset(), rank.failed.reset();
  rank.heard_orders.clear();
  for (auto& [channel, peer] : peers_)
    if (!peer.mute && peer.of == RankId{rank.rank, rank.attempt} && peer.process != *rank.speaker)
      silence(peer, rank, is_child(peer.says_pid, std::abs(rank.speaker->pid), rank.rank));
}

}  // namespace holdfast::launcher

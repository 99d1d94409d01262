#pragma once
// The processes that have opened the client as ranks of this node. One process of each rank is heard
// (speaker.hpp); all others are told so, and what they say is passed over.
#include <map>
#include <string>

#include "launcher/agent/daemon/rank_keeper.hpp"

namespace holdfast::launcher {

class RankPeers {
 public:
  RankPeers(AgentHere& here, RankKeeper& keeper) : here_(here), keeper_(keeper) {}
  /// A process has connected as a rank of the live attempt. False: it is not known whether it speaks for the
  /// rank, and it has to connect again.
  bool accept(const control::ChannelPtr& channel, const control::Hello& hello);
  void hear(control::Channel& from, const control::RankToAgent& message);
  void closed(const control::Channel& channel) { peers_.erase(&channel); }

 private:
  struct Peer {
    control::Channel* channel = nullptr;
    control::RankId of;
    int says_pid = 0;  ///< it may call itself otherwise than this node does
    ProcessId process;
    bool mute = false;  ///< it does not speak for its rank
  };
  void silence(Peer& peer, LocalRank& rank, const std::string& why);
  void silence_others(LocalRank& rank);

  AgentHere& here_;
  RankKeeper& keeper_;
  std::map<const control::Channel*, Peer> peers_;
};

}  // namespace holdfast::launcher

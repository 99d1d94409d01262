#pragma once
// Carries what libpmix asks to the agent of this node, and the answers back. It keeps what is not answered,
// and says it again to an agent or a leader that has replaced the one before.
#include <map>
#include <string>
#include <utility>

#include "launcher/pmix/pmix_server.hpp"
#include "src/control/channel.hpp"
#include "src/control/loop.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class PmixRelay {
 public:
  /// `hello`: how to begin each connection to the agent at `socket`.
  PmixRelay(control::Loop& loop, const PmixJob& job, const std::filesystem::path& socket,
            const control::Key& secret, control::Hello hello);

 private:
  struct Fence {
    control::PmixFence said;
    PmixRequests::Answer answer;  ///< empty: answered
  };

  void connect();
  void greet();
  void hear(const control::AgentToPmix& message);
  void say(const control::Message& message);
  void repeat();
  void ask_again();
  void come_to_fence(const std::string& set, int nodes, std::string published, PmixRequests::Answer answer);
  void ask(int rank, PmixRequests::Answer answer);

  control::Loop& loop_;
  PmixJob job_;
  std::filesystem::path socket_;
  control::Key secret_;
  control::Hello hello_;
  /// By set and number: of each set the last two. Before this node came to the last one, all nodes of the set
  /// had come to the one before; it may be that some have not heard so yet.
  std::map<std::string, std::map<std::int64_t, Fence>> fences_;
  std::multimap<int, PmixRequests::Answer> questions_;  ///< by rank
  PmixRequests requests_;
  control::ChannelPtr channel_;
  control::Loop::Handle redial_, asking_;
  PmixServer server_;  ///< the last to be created, the first to end: it calls the rest
};

}  // namespace holdfast::launcher

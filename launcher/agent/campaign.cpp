#include "launcher/agent/campaign.hpp"

#include <utility>

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis campaign_limit{1000};
}

Campaign::Campaign(Loop& loop, const Roster& roster, const Key& secret, int self, int epoch,
                   std::vector<bool> lost, std::function<void(Ballot::Outcome)> done)
    : own_(roster.nodes[static_cast<std::size_t>(self)].name),
      epoch_(epoch),
      done_(std::move(done)),
      ballot_(std::move(lost)),
      channels_(roster.nodes.size()) {
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n) {
    const auto& node = roster.nodes[static_cast<std::size_t>(n)];
    auto& channel = channels_[static_cast<std::size_t>(n)];
    // Its own agent too: it may hear a leader that this moment's timer has not noticed.
    channel = dial(
        loop, TcpAddress{node.address, node.port}, secret, campaign_limit,
        {[this, n] {
           channels_[static_cast<std::size_t>(n)]->send(encode(Hello{Hello::Role::candidate, own_, epoch_}));
         },
         [this, n](std::string_view line) {
           std::string why;
           const auto message = decode(line, why);
           if (!message || !std::holds_alternative<control::Answer>(*message)) return;
           ballot_.answered(n, std::get<control::Answer>(*message));
           count(false);
         },
         nullptr});
  }
  limit_ = loop.after(campaign_limit, [this] { count(true); });
}

void Campaign::count(bool last_call) {
  const auto outcome = ballot_.count(last_call);
  if (outcome == Ballot::Outcome::open || std::exchange(over_, true)) return;
  done_(outcome);
}

}  // namespace holdfast::launcher

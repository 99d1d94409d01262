#include "launcher/agent/campaign.hpp"

#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis limit{1000};
}

bool enough(int granted, int denied, int voters) { return denied == 0 && 2 * granted >= voters; }

Campaign::Campaign(Loop& loop, RunDir run, const Roster& roster, const Key& secret, int self, int epoch,
                   std::function<void()> third_voice, std::function<void(bool, int)> done)
    : run_(std::move(run)),
      roster_(roster),
      epoch_(epoch),
      third_voice_(std::move(third_voice)),
      done_(std::move(done)),
      channels_(roster.nodes.size()) {
  try {
    lost_ = fold(run_).lost;
  } catch (const Error& error) {
    log::warn("the event log cannot be read: {}", error.what());
  }
  own_ = roster_.nodes[static_cast<std::size_t>(self)].name;
  for (int n = 0; n < static_cast<int>(roster_.nodes.size()); ++n) {
    const auto& node = roster_.nodes[static_cast<std::size_t>(n)];
    auto& channel = channels_[static_cast<std::size_t>(n)];
    // Its own agent too: it may hear a leader that this moment's timer has not noticed.
    channel = dial(
        loop, TcpAddress{node.address, node.port}, secret, limit,
        {[this, n] {
           channels_[static_cast<std::size_t>(n)]->send(encode(Hello{Hello::Role::candidate, own_, epoch_}));
         },
         [this, n](std::string_view line) {
           std::string why;
           const auto message = decode(line, why);
           if (message && std::holds_alternative<Answer>(*message)) answered(n, std::get<Answer>(*message));
         },
         nullptr});
  }
  limit_ = loop.after(limit, [this] { decide(true); });
}

void Campaign::answered(int node, const Answer& answer) {
  if (!lost_.contains(roster_.nodes[static_cast<std::size_t>(node)].name))
    (answer.grant ? granted_ : denied_).insert(node);
  decide(false);
}

void Campaign::decide(bool last_call) {
  if (over_) return;
  int voters = 0;
  for (const auto& node : roster_.nodes) voters += !lost_.contains(node.name);
  const int granted = static_cast<int>(granted_.size()), denied = static_cast<int>(denied_.size());
  bool won = enough(granted, denied, voters);
  // Of two, half is oneself: alone against the other, a third voice must say that it is not we who are cut
  // off.
  const bool alone = won && voters == 2 && granted == 1;
  if ((!won || alone) && !last_call && denied == 0) return;
  over_ = true;
  if (won) {
    try {
      if (alone) third_voice_();
      won = take_epoch(run_, epoch_, own_);
    } catch (const Error& error) {
      log::warn("epoch {} cannot be taken: {}", epoch_, error.what());
      won = false;
    }
  }
  done_(won, epoch_);
}

}  // namespace holdfast::launcher

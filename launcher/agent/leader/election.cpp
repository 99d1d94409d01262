#include "launcher/agent/leader/election.hpp"

#include <utility>

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis election_limit{1000};
}

Election::Election(Loop& loop, const Roster& roster, const Key& secret, int self, int term,
                   std::vector<bool> lost, std::function<void(ElectionCount::Outcome)> done)
    : own_(roster.nodes[self].name),
      term_(term),
      done_(std::move(done)),
      answers_(std::move(lost)),
      channels_(roster.nodes.size()) {
  for (int n = 0; n < static_cast<int>(roster.nodes.size()); ++n) {
    const auto& node = roster.nodes[n];
    auto& channel = channels_[n];
    // Its own agent too: it may have heard a leader since the timer ran out.
    channel = dial(loop, node.agent(), secret, election_limit,
                   {[this, n] {
                      channels_[n]->send(encode(Hello{Hello::Role::candidate, own_, term_}));
                    },
                    [this, n](std::string_view line) {
                      std::string why;
                      const auto answer = decode<Answer>(line, why);
                      if (!answer) return;
                      answers_.answered(n, *answer);
                      count(false);
                    },
                    nullptr});
  }
  limit_ = loop.after(election_limit, [this] { count(true); });
}

void Election::count(bool last_call) {
  const auto outcome = answers_.outcome(last_call);
  if (outcome == ElectionCount::Outcome::open || std::exchange(over_, true)) return;
  done_(outcome);
}

}  // namespace holdfast::launcher

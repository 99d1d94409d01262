#include "launcher/agent/daemon/caller.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "src/base/error.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

constexpr Millis one_agent{2000};  // then the next one is asked
constexpr Millis round_pause{300};

/// The answer of one agent, or the reason why there is none.
struct Answered {
  std::optional<OrderTaken> answer;
  std::string why = "no answer";
};

Answered ask(const Roster::Node& node, const Key& secret, const Message& question, Millis limit) {
  RealLoop loop;
  Answered out;
  ChannelPtr channel;
  const auto end = loop.after(limit, [&] { loop.stop(); });
  channel = dial(loop, node.agent(), secret, limit,
                 {[&] {
                    Hello hello;
                    hello.role = Hello::Role::caller;
                    hello.pid = ::getpid();
                    channel->send(encode(hello));
                    channel->send(encode(question));
                  },
                  [&](std::string_view text) {
                    out.answer = decode<OrderTaken>(text, out.why);
                    loop.stop();
                  },
                  [&](const std::string& why) {
                    out.why = why;
                    loop.stop();
                  }});
  loop.run();
  return out;
}

}  // namespace

OrderTaken give_order(const RunDir& run, const Order& order, std::chrono::milliseconds limit) {
  const Roster roster = read_roster(run);
  const Key secret = read_secret(run.secret());
  const auto deadline = Deadline::in(limit);
  std::string why = "the run has no nodes";
  while (!deadline.passed()) {
    for (const auto& node : roster.nodes) {
      const auto left = std::chrono::duration_cast<Millis>(deadline.left());
      if (left.count() <= 0) break;
      auto reply = ask(node, secret, order, std::min(one_agent, left));
      if (reply.answer && !reply.answer->again) return *reply.answer;
      why = fmt::format("{}: {}", node.name, reply.answer ? reply.answer->says : reply.why);
    }
    std::this_thread::sleep_for(round_pause);
  }
  throw Error(Exit::transient, "the order is not confirmed", why,
              "The leader may have taken it all the same: does 'holdfast status' show that?");
}

OrderTaken inject(const RunDir& run, const std::string& name, const Inject& fault,
                  std::chrono::milliseconds limit) {
  const Roster roster = read_roster(run);
  const int n = roster.node_called(name);
  if (n < 0) throw Error(Exit::usage, "the run has no node " + name, "", "'holdfast status' lists its nodes");
  auto reply = ask(roster.nodes[n], read_secret(run.secret()), fault, limit);
  if (reply.answer) return *reply.answer;
  throw Error(Exit::transient, "the agent of " + name + " does not answer", reply.why);
}

}  // namespace holdfast::launcher

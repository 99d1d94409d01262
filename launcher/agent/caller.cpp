#include "launcher/agent/caller.hpp"

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

/// One agent's answer, or why there is none.
struct Answered {
  std::optional<OrderTaken> answer;
  std::string why = "no answer";
};

Answered ask(const Roster::Node& node, const Key& secret, const Message& question, Millis limit) {
  Loop loop;
  Answered out;
  ChannelPtr line;
  const auto end = loop.after(limit, [&] { loop.stop(); });
  line = dial(loop, TcpAddress{node.address, node.port}, secret, limit,
              {[&] {
                 Hello hello;
                 hello.role = Hello::Role::caller, hello.pid = ::getpid();
                 line->send(encode(hello));
                 line->send(encode(question));
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
      auto said = ask(node, secret, order, std::min(one_agent, left));
      if (said.answer && !said.answer->again) return *said.answer;
      why = fmt::format("{}: {}", node.name, said.answer ? said.answer->says : said.why);
    }
    std::this_thread::sleep_for(round_pause);
  }
  throw Error(
      Exit::transient, "the order is not confirmed", why,
      "It may have been taken all the same: 'holdfast status' tells what the run does, if it still lives");
}

OrderTaken inject(const RunDir& run, const std::string& name, const Inject& fault,
                  std::chrono::milliseconds limit) {
  const Roster roster = read_roster(run);
  const int n = roster.node_called(name);
  if (n < 0) throw Error(Exit::usage, "the run has no node " + name, "", "'holdfast status' lists its nodes");
  auto said = ask(roster.nodes[static_cast<std::size_t>(n)], read_secret(run.secret()), fault, limit);
  if (said.answer) return *said.answer;
  throw Error(Exit::transient, "the agent of " + name + " does not answer", said.why);
}

}  // namespace holdfast::launcher

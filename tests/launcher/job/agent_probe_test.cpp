#include "launcher/job/agent_probe.hpp"

#include <gmock/gmock.h>

#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using namespace control;
using control::test::LoopThread;
using Probe = StepWatch::Probe;

class AgentProbeTest : public testing::Test {
 protected:
  AgentProbeTest() {
    loop.call([this] {
      probe.emplace(
          loop.loop, TcpAddress{"127.0.0.1", port}, secret,
          AgentProbe::Hooks{[this](Probe what) { heard.push_back(what); }, [this](Channel&) { ++connected; }},
          AgentProbe::Periods{Millis(40), Millis(20), Millis(1000)});
      ticks = loop.loop.every(Millis(10), [this] { probe->tick(); });
    });
  }
  ~AgentProbeTest() override {
    loop.call([this] { ticks.reset(), probe.reset(), accepted.clear(), listener.reset(); });
  }
  void listen() {
    loop.call([this] {
      listener.emplace(loop.loop, TcpAddress{"127.0.0.1", port}, secret, [this](ChannelPtr channel) {
        channel->handle({});
        accepted.push_back(std::move(channel));
      });
    });
  }
  bool hears(Probe what) {
    loop.call([this] { heard.clear(); });
    return loop.until([&] { return heard.size() >= 4 && heard.back() == what; });
  }
  LoopThread loop;
  const int port = control::test::free_port();
  const Key secret = random_key();
  std::optional<AgentProbe> probe;
  std::optional<Listener> listener;
  std::vector<ChannelPtr> accepted;
  std::vector<Probe> heard;
  int connected = 0;
  Loop::Handle ticks;
};

TEST_F(AgentProbeTest, OneConnectionTellsThatAnAgentIsThere) {
  EXPECT_TRUE(hears(Probe::refuses));
  listen();
  EXPECT_TRUE(hears(Probe::answers));
  EXPECT_TRUE(hears(Probe::answers));
  EXPECT_EQ(loop.call([this] { return accepted.size(); }), 1u);
  EXPECT_TRUE(loop.call([this] { return probe->channel() != nullptr; }));
}

TEST_F(AgentProbeTest, AConnectionThatBreaksIsMadeAnewAndAnAgentThatIsGoneRefuses) {
  listen();
  EXPECT_TRUE(hears(Probe::answers));
  loop.call([this] { accepted.front()->close(); });
  EXPECT_TRUE(loop.until([this] { return connected == 2; }));
  EXPECT_TRUE(hears(Probe::answers)) << "an agent that was replaced is there";
  loop.call([this] {
    listener.reset();
    for (const auto& channel : accepted) channel->close();
  });
  EXPECT_TRUE(hears(Probe::refuses));
}

}  // namespace
}  // namespace holdfast::launcher

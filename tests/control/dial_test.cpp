// An agent listens on one of several ports, and its host has several addresses; strangers listen beside it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/control/channel.hpp"
#include "src/control/names.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::control {
namespace {

using test::LoopThread;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

const Key dial_secret = [] {
  Key key;
  key.fill(9);
  return key;
}();
constexpr int ports = 4;
constexpr int nothing_bound = -1;

bool can_bind(int port) {
  const files::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}
/// So many neighbouring ports are free.
int free_ports() {
  for (;;) {
    const int first = test::free_port();
    bool all = first + ports <= 65535;
    for (int i = 0; all && i < ports; ++i) all = can_bind(first + i);
    if (all) return first;
  }
}

/// Another program's port: it accepts, and says `says` to everybody.
class Stranger {
 public:
  Stranger(int port, std::string says) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int one = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(fd_.get(), 8) != 0)
      throw std::runtime_error("cannot listen");
    if (says.empty()) return;  // the kernel accepts
    thread_ = std::thread([this, says] {
      for (;;) {
        const files::Fd guest(::accept(fd_.get(), nullptr, nullptr));
        if (!guest) return;
        [[maybe_unused]] const auto sent = ::send(guest.get(), says.data(), says.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~Stranger() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

 private:
  files::Fd fd_;
  std::thread thread_;
};

class DialTest : public testing::Test {
 protected:
  ~DialTest() override {
    loop.call([this] { channel.reset(), accepted.clear(), listener.reset(); });
    loop.end();
  }
  void listen(int port, const std::string& host = "") {
    loop.call([&] {
      listener.emplace(loop.loop, TcpAddress{host, port}, dial_secret,
                       [this](ChannelPtr guest) { accepted.push_back(std::move(guest)); });
    });
  }
  void dial(const TcpAddress& to, const Key& key = dial_secret) {
    began = Clock::now();
    loop.call([&] {
      opened = false;
      closed.reset();
      channel = control::dial(loop.loop, to, key, 2s,
                              {[this] {
                                 opened = true;
                                 over = Clock::now();
                               },
                               nullptr,
                               [this](const std::string& why) {
                                 closed = why;
                                 over = Clock::now();
                               }});
    });
    ASSERT_TRUE(loop.until([this] { return opened || closed; }));
  }
  double took() const { return std::chrono::duration<double>(over - began).count(); }

  const int first = free_ports();
  const TcpAddress node{"127.0.0.1", first, ports};
  std::optional<Listener> listener;
  std::vector<ChannelPtr> accepted;
  ChannelPtr channel;
  bool opened = false;
  std::optional<std::string> closed;
  Clock::time_point began, over;
  LoopThread loop;  // last: its thread ends before what it works on goes
};

TEST_F(DialTest, FindsThePortThatTheOtherEndHasTaken) {
  for (const int taken : {0, 1, ports - 1}) {
    listen(first + taken);
    dial(node);
    EXPECT_TRUE(opened) << closed.value_or("");
    EXPECT_LT(took(), 0.2);
    loop.call([this] { channel.reset(), accepted.clear(), listener.reset(); });
  }
}

TEST_F(DialTest, NobodyListensWhenEveryPortRefuses) {
  dial(node);
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed, refusal());
  EXPECT_TRUE(nobody_listens(*closed));
  EXPECT_LT(took(), 0.2);
}

TEST_F(DialTest, AStrangerWhoTalksCostsNothing) {
  const Stranger web(first, "HTTP/1.1 400 Bad Request\r\n\r\n");
  listen(first + 1);
  dial(node);
  EXPECT_TRUE(opened) << closed.value_or("");
  EXPECT_LT(took(), 0.2);
}

TEST_F(DialTest, AStrangerIsNamedWhereNobodyElseListens) {
  const Stranger web(first, "HTTP/1.1 400 Bad Request\r\n\r\n");
  dial(node);
  ASSERT_TRUE(closed);
  EXPECT_TRUE(nobody_listens(*closed)) << *closed;
  EXPECT_THAT(*closed, HasSubstr("is no agent of this run (127.0.0.1:" + std::to_string(first)));
}

TEST_F(DialTest, ASilentStrangerIsPassedOver) {
  const Stranger mute(first, "");
  listen(first + 1);
  dial(node);
  EXPECT_TRUE(opened) << closed.value_or("");
  EXPECT_LT(took(), 1.0);
  // The next time the right port is tried first.
  loop.call([this] { channel.reset(); });
  dial(node);
  EXPECT_TRUE(opened);
  EXPECT_LT(took(), 0.2);
}

TEST_F(DialTest, ASilentOneMayBeASlowAgent) {
  const Stranger mute(first, "");
  dial(node);
  ASSERT_TRUE(closed);
  EXPECT_FALSE(nobody_listens(*closed)) << *closed;
  EXPECT_EQ(closed, "no handshake within 5 s");
}

/// A stopped process: its kernel accepts and acknowledges.
TEST_F(DialTest, TheKernelOfOneThatDoesNotReadIsHeard) {
  const Stranger mute(first, "");
  loop.call([&] { channel = control::dial(loop.loop, node, dial_secret, 2s, {}); });
  const auto silent_s = [&] {
    std::optional<double> out;
    loop.call([&] { out = channel->unacknowledged_s(); });
    return out;
  };
  ASSERT_TRUE(loop.until([&] { return channel->unacknowledged_s().has_value(); }));
  const auto until = Clock::now() + 4s;
  double longest = 0;
  while (Clock::now() < until) {
    std::this_thread::sleep_for(50ms);
    const auto now = silent_s();
    ASSERT_TRUE(now);
    longest = std::max(longest, *now);
  }
  EXPECT_LT(longest, 2.5) << "it is asked each second";
  EXPECT_GT(longest, 0.5);
}

TEST_F(DialTest, NobodysKernelSaysNothing) {
  dial(node);
  ASSERT_TRUE(closed);
  loop.call([&] { EXPECT_EQ(channel->unacknowledged_s(), std::nullopt); });
}

TEST_F(DialTest, AnAgentThatMovedIsFoundAtOnce) {
  listen(first + 2);
  dial(node);
  loop.call([this] { channel.reset(), accepted.clear(), listener.reset(); });
  listen(first);
  dial(node);
  EXPECT_TRUE(opened) << closed.value_or("");
  EXPECT_LT(took(), 0.2);
}

TEST_F(DialTest, AnotherRunsAgentIsAStranger) {
  listen(first);
  Key other = dial_secret;
  other[0] ^= 1;
  dial(node, other);
  ASSERT_TRUE(closed);
  EXPECT_TRUE(nobody_listens(*closed)) << *closed;
}

TEST_F(DialTest, MessagesGoThroughTheChannelThatWon) {
  const Stranger mute(first, "");
  listen(first + 1);
  dial(node);
  ASSERT_TRUE(loop.until([this] { return accepted.size() == 1; }));
  std::string heard;
  loop.call([&] {
    accepted[0]->handle({nullptr, [&](std::string_view text) { heard = text; }, nullptr});
    channel->send("word");
  });
  EXPECT_TRUE(loop.until([&] { return heard == "word"; }));
  EXPECT_TRUE(loop.call([this] { return channel->open(); }));
  loop.call([this] { channel->close(); });
  EXPECT_TRUE(loop.until([this] { return !accepted[0]->open(); }));
}

TEST_F(DialTest, AnAddressThatDoesNotAnswerIsNotWaitedFor) {
  listen(first);
  dial({"127.0.0.1", first, ports, {"192.0.2.1"}});  // of a network that there is not
  EXPECT_TRUE(opened) << closed.value_or("");
  EXPECT_LT(took(), 1.5);
}

TEST_F(DialTest, KnownAddressesServeWhereTheNameDoesNot) {
  listen(first);
  dial({"no-such-host.invalid", first, ports, {"127.0.0.1"}});
  EXPECT_TRUE(opened) << closed.value_or("");
}

TEST_F(DialTest, AnUnknownNameIsNamed) {
  dial({"no-such-host.invalid", first, ports});
  ASSERT_TRUE(closed);
  EXPECT_THAT(*closed, HasSubstr("no-such-host.invalid"));
  EXPECT_FALSE(nobody_listens(*closed));
}

TEST_F(DialTest, ByNameAndByIpv6) {
  listen(first);
  dial({"localhost", first, ports});
  EXPECT_TRUE(opened) << closed.value_or("");
  const files::Fd six(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (!six ||
      ::bind(six.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == nothing_bound)
    GTEST_SKIP() << "this machine has no IPv6";
  loop.call([this] { channel.reset(); });
  dial({"::1", first, ports});
  EXPECT_TRUE(opened) << closed.value_or("");
  // A host whose IPv6 address nobody listens on, as its name resolves to it first.
  loop.call([this] { channel.reset(), accepted.clear(), listener.reset(); });
  listen(first, "127.0.0.1");
  dial({"127.0.0.1", first, ports, {"::1"}});
  EXPECT_TRUE(opened) << closed.value_or("");
}

TEST(Names, AreLookedUpSideBySideWithoutLoopback) {
  const auto found = look_up_all({"localhost", "no-such-host.invalid", "192.0.2.7"}, 5s);
  EXPECT_THAT(found.at("localhost").addresses, IsEmpty());
  EXPECT_THAT(found.at("192.0.2.7").addresses, testing::ElementsAre("192.0.2.7"));
  EXPECT_THAT(found.at("no-such-host.invalid").addresses, IsEmpty());
  EXPECT_THAT(found.at("no-such-host.invalid").why, HasSubstr("no-such-host.invalid"));
  EXPECT_TRUE(look_up_all({}, 5s).empty());
  EXPECT_TRUE(is_ip_address("fd77::1") && is_ip_address("10.0.0.1"));
  EXPECT_FALSE(is_ip_address("dgx001") || is_ip_address(""));
}

TEST(Addresses, AsText) {
  EXPECT_EQ(to_text(TcpAddress{"fd77::1", 20000}), "[fd77::1]:20000");
  EXPECT_EQ(to_text(TcpAddress{"dgx001", 20000}), "dgx001:20000");
}

}  // namespace
}  // namespace holdfast::control

// Connections over real sockets: messages both ways, ends without the secret, ends that vanish or do not
// read.
#include "src/control/channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <ctime>
#include <deque>
#include <map>

#include "src/base/error.hpp"
#include "src/control/gate.hpp"
#include "src/control/session.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/support/no_descriptors.hpp"

namespace holdfast::control {
namespace {

using test::LoopThread;
using testing::HasSubstr;
using namespace std::chrono_literals;

const Key shared_secret = [] {
  Key key;
  key.fill(7);
  return key;
}();

/// One end of a connection, and the messages that it has received.
struct End {
  ChannelPtr channel;
  bool opened = false;
  std::vector<std::string> heard;
  std::optional<std::string> closed;
  Channel::Handlers handlers() {
    return {[this] { opened = true; }, [this](std::string_view text) { heard.emplace_back(text); },
            [this](const std::string& why) { closed = why; }};
  }
};

class ChannelTest : public testing::TestWithParam<bool> {
 protected:
  ChannelTest() {
    address =
        GetParam() ? Address(folder.path / "a.sock") : Address(TcpAddress{"127.0.0.1", test::free_port()});
  }
  void listen() {
    loop.call([this] {
      listener.emplace(loop.loop, address, shared_secret, [this](ChannelPtr channel) {
        server.channel = std::move(channel);
        server.opened = true;
        server.channel->handle(server.handlers());
      });
    });
  }
  void dial(const Key& key = shared_secret) {
    loop.call([&] { client.channel = control::dial(loop.loop, address, key, 2s, client.handlers()); });
  }
  void connect() {
    listen();
    dial();
    ASSERT_TRUE(loop.until([this] { return client.opened && server.opened; }));
  }
  /// A connected socket without Holdfast's protocol.
  test::RawSocket raw() { return test::RawSocket(address); }

  test::Folder folder;
  Address address;
  End client, server;
  std::optional<Listener> listener;
  LoopThread loop;  // last: its thread ends before what it works on goes

  ~ChannelTest() override {
    loop.call([this] {
      client.channel.reset(), server.channel.reset();
      listener.reset();
    });
    loop.end();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, ChannelTest, testing::Bool(),
                         [](const auto& p) { return p.param ? "UnixSocket" : "Tcp"; });

;

TEST(ListenerTest, WithoutDescriptorsItWaitsForOne) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer of the same preset needs descriptors to look at an object's type";
#endif
  const test::Folder folder;
  LoopThread loop;
  const Address address = folder.path / "a.sock";
  int accepted = 0;
  ChannelPtr client;
  auto listener = loop.call([&] {
    return std::make_unique<Listener>(loop.loop, address, shared_secret, [&](ChannelPtr) { ++accepted; });
  });
  const auto busy = [&] {
    return loop.call([] {
      timespec used{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
    });
  };
  const files::Fd waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un to{AF_UNIX, {}};
  std::get<std::filesystem::path>(address).string().copy(to.sun_path, sizeof to.sun_path - 1);
  {
    const holdfast::test::NoDescriptors here;
    ASSERT_EQ(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const auto begin = busy();
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(busy() - begin, 30ms) << "of its processor, though it can do nothing";
  }
  loop.call([&] { client = control::dial(loop.loop, address, shared_secret, 2s, {}); });
  EXPECT_TRUE(loop.until([&] { return accepted == 1; }));
  loop.call([&] { client.reset(), listener.reset(); });
}

TEST_P(ChannelTest, WordsArriveWholeAndInOrder) {
  connect();
  const std::string big(3 << 20, 'b');
  loop.call([&] {
    for (int i = 0; i < 500; ++i)
      client.channel->send(std::to_string(i)), server.channel->send(std::to_string(-i));
    client.channel->send(big);
    client.channel->send("last");
  });
  ASSERT_TRUE(loop.until([this] { return server.heard.size() == 502 && client.heard.size() == 500; }));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(server.heard[i], std::to_string(i));
    EXPECT_EQ(client.heard[i], std::to_string(-i));
  }
  EXPECT_TRUE(server.heard[500] == big);
  EXPECT_EQ(server.heard[501], "last");
  EXPECT_TRUE(loop.call([this] { return client.channel->open() && server.channel->open(); }));
}

TEST_P(ChannelTest, CloseSendsWhatIsQueued) {
  connect();
  loop.call([this] {
    for (int i = 0; i < 100; ++i) client.channel->send(std::string(20000, 'x'));
    client.channel->close();
    client.channel->send("too late");
    EXPECT_FALSE(client.channel->open() && client.closed);
  });
  ASSERT_TRUE(loop.until([this] { return server.closed.has_value(); }));
  EXPECT_EQ(server.heard.size(), 100u);
  EXPECT_FALSE(client.closed) << "who closes needs not be told";
  EXPECT_FALSE(loop.call([this] { return server.channel->open(); }));
}

TEST_P(ChannelTest, OtherEndVanishes) {
  connect();
  loop.call([this] { server.channel.reset(); });
  ASSERT_TRUE(loop.until([this] { return client.closed.has_value(); }));
  loop.call([this] { client.channel->send("to nobody"); });
  EXPECT_FALSE(loop.call([this] { return client.channel->open(); }));
}

TEST_P(ChannelTest, NobodyListens) {
  dial();
  ASSERT_TRUE(loop.until([this] { return client.closed.has_value(); }));
  EXPECT_FALSE(client.opened);
}

TEST_P(ChannelTest, WrongSecret) {
  listen();
  Key other = shared_secret;
  other[31] ^= 1;
  dial(other);
  ASSERT_TRUE(loop.until([this] { return client.closed.has_value(); }));
  EXPECT_FALSE(client.opened || server.opened);
}

TEST_P(ChannelTest, AddressInUse) {
  listen();
  if (GetParam()) {
    struct stat facts {};
    ASSERT_EQ(::stat(std::get<std::filesystem::path>(address).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    loop.call([this] { listener.reset(); });
    std::ofstream(std::get<std::filesystem::path>(address)) << "left behind";
    listen();
    dial();
    EXPECT_TRUE(loop.until([this] { return client.opened; })) << "what a dead agent left is replaced";
    return;
  }
  loop.call([this] {
    try {
      const Listener second(loop.loop, address, shared_secret, [](ChannelPtr) {});
      ADD_FAILURE() << "two listen on one port";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::transient);
      EXPECT_THAT(error.what(), HasSubstr("cannot listen on " + to_text(address)));
    }
  });
}

TEST_P(ChannelTest, StrangersAreShownOut) {
  listen();
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("{\"nonce\":\"00\",\"proof\":\"00\"}\n"),
        std::string(1000, 'x'), std::string("\0\n", 2), std::string(1 << 20, '\n')}) {
    auto stranger = raw();
    stranger.send(said);
    EXPECT_TRUE(stranger.closed_within(2s)) << said.substr(0, 30);
  }
  EXPECT_FALSE(server.opened);
  dial();
  EXPECT_TRUE(loop.until([this] { return client.opened && server.opened; })) << "a friend still gets in";
}

TEST_P(ChannelTest, WithoutDescriptorsNothingIsKnownOfTheOtherEnd) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer of the same preset needs descriptors to look at an object's type";
#endif
  listen();
  {
    const holdfast::test::NoDescriptors here;
    dial();
    ASSERT_TRUE(loop.until([this] { return client.closed.has_value(); }));
  }
  EXPECT_TRUE(could_not_call(*client.closed)) << *client.closed;
  EXPECT_FALSE(could_not_call(refusal()));
}

TEST_P(ChannelTest, SilentStrangersPushOutOnlyEachOther) {
  if (GetParam()) GTEST_SKIP() << "nobody else can connect to a Unix socket";
  listen();
  constexpr int most = 32;  // of one source
  std::deque<test::RawSocket> strangers;
  for (int i = 0; i < most; ++i) strangers.push_back(raw()), strangers.back().line();
  for (int i = 0; i < 3 * most; ++i) {
    strangers.push_back(raw());
    strangers.back().line();  // it has been accepted
    EXPECT_TRUE(strangers.front().closed_within(2s)) << "the oldest";
    strangers.pop_front();
  }
  dial();
  EXPECT_TRUE(loop.until([this] { return client.opened && server.opened; })) << "a friend still gets in";
  EXPECT_TRUE(strangers.front().closed_within(2s)) << "in the place of the oldest";
  EXPECT_FALSE(strangers.back().closed_within(50ms));
}

TEST(GateTest, ClosesTheOldestOfTheSourceThatHasTheMost) {
  Gate gate("the listener of this test", {3, 5});
  std::vector<std::string> closed;
  std::map<std::string, Gate::Visit> visits;
  const auto enter = [&](const std::string& source, const std::string& name) {
    visits[name] = gate.enter(source, [&closed, name] { closed.push_back(name); });
  };
  for (const char* name : {"a1", "a2", "a3", "b1"}) enter(std::string(name).substr(0, 1), name);
  EXPECT_TRUE(closed.empty());
  enter("a", "a4");
  EXPECT_THAT(closed, testing::ElementsAre("a1")) << "one source has its limit";
  enter("c", "c1");
  EXPECT_EQ(gate.waiting(), 5u);
  enter("d", "d1");
  EXPECT_THAT(closed, testing::ElementsAre("a1", "a2")) << "and all together have one";
  visits.erase("a3"), visits.erase("a1");
  EXPECT_EQ(gate.waiting(), 4u);
  enter("a", "a5");
  EXPECT_EQ(gate.closed(), 2u);
}

/// Both directions at once, because it takes the handshake's five seconds.
class SilentStranger : public ChannelTest {};
INSTANTIATE_TEST_SUITE_P(Over, SilentStranger, testing::Values(true),
                         [](const auto&) { return "UnixSocket"; });
TEST_P(SilentStranger, IsNotWaitedFor) {
  listen();
  auto stranger = raw();
  const test::RawListener silent(folder.path / "silent.sock");
  loop.call([&] {
    client.channel =
        control::dial(loop.loop, folder.path / "silent.sock", shared_secret, 2s, client.handlers());
  });
  EXPECT_TRUE(stranger.closed_within(6s));
  EXPECT_TRUE(loop.until([this] { return client.closed.has_value(); }, 2s));
  EXPECT_EQ(client.closed, "no handshake within 5 s");
  EXPECT_FALSE(server.opened || client.opened);
}

TEST_P(ChannelTest, BrokenSealEndsTheConnection) {
  listen();
  auto peer = raw();
  Session session = peer.shake_hands(shared_secret);
  ASSERT_TRUE(session.established());
  const std::string good = session.seal("good"), bad = session.seal("bad"), next = session.seal("next");
  std::string bent = bad;
  bent[0] = 'B';
  peer.send(good + "\n" + bent + "\n" + next + "\n");
  EXPECT_TRUE(peer.closed_within(2s));
  ASSERT_TRUE(loop.until([this] { return server.closed.has_value(); }));
  EXPECT_EQ(server.closed, "a line's seal is broken");
  EXPECT_THAT(server.heard, testing::ElementsAre("good"));
}

TEST_P(ChannelTest, LineWithoutEndEndsTheConnection) {
  listen();
  auto peer = raw();
  ASSERT_TRUE(peer.shake_hands(shared_secret).established());
  peer.send(std::string(sealed_line_limit + (1 << 16), 'x'));
  ASSERT_TRUE(loop.until([this] { return server.closed.has_value(); }));
  EXPECT_EQ(server.closed, "a line is too long");
}

TEST_P(ChannelTest, WhoDoesNotReadIsGivenUp) {
  listen();
  auto peer = raw();
  ASSERT_TRUE(peer.shake_hands(shared_secret).established());
  ASSERT_TRUE(loop.until([this] { return server.opened; }));
  loop.call([this] {
    const std::string chunk(8 << 20, 'x');
    for (int i = 0; i < 10 && !server.closed; ++i) server.channel->send(chunk);
  });
  EXPECT_EQ(server.closed, "the other end does not read");
}

/// The channel lives as long as the caller holds it, even when something is still on its way: what the
/// handlers use may be gone.
TEST_P(ChannelTest, NoHandlerIsCalledOnceTheOwnerHasLetGo) {
  listen();
  auto peer = raw();
  ASSERT_TRUE(peer.shake_hands(shared_secret).established());
  ASSERT_TRUE(loop.until([this] { return server.opened; }));
  loop.call([this] {
    server.channel->send(std::string(6 << 20, 'x'));  // more than the sockets hold
    server.channel.reset();
  });
  peer.close();
  loop.settle();
  EXPECT_FALSE(server.closed);
}

TEST_P(ChannelTest, NobodyIsAcceptedOnceTheListenerHasGone) {
  listen();
  auto peer = raw();
  const std::string challenge = peer.line();  // the listener has taken the connection
  EXPECT_THAT(challenge, HasSubstr("nonce"));
  loop.call([this] { listener.reset(); });
  Session session(Session::End::client, shared_secret);
  std::optional<std::string> answer;
  std::string why;
  ASSERT_TRUE(session.handshake(challenge, answer, why));
  peer.send(*answer + "\n");
  EXPECT_TRUE(peer.closed_within(2s));
  EXPECT_FALSE(server.opened);
}

}  // namespace
}  // namespace holdfast::control

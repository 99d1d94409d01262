// Orders from outside reach a leader through any agent.
#include "launcher/agent/daemon/caller.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using namespace control;
using testing::HasSubstr;
using namespace std::chrono_literals;

/// An agent that answers every caller with `answer`.
class Clerk {
 public:
  Clerk(RealLoop& loop, int port, const Key& secret, OrderTaken answer)
      : answer_(std::move(answer)),
        listener_(loop, TcpAddress{"127.0.0.1", port}, secret, [this](ChannelPtr channel) {
          line_ = std::move(channel);
          line_->handle({nullptr, [this](std::string_view text) { take(text); }, nullptr});
        }) {}
  std::vector<Message> heard;

 private:
  void take(std::string_view text) {
    std::string why;
    heard.push_back(*decode(text, why));
    if (std::holds_alternative<Hello>(heard.back())) return;
    line_->send(encode(answer_));
  }
  OrderTaken answer_;
  ChannelPtr line_;
  Listener listener_;
};

class CallerTest : public testing::Test {
 protected:
  CallerTest() : run{folder.path}, secret(random_key()) {
    files::replace_atomically(run.secret(), to_hex(secret) + "\n", files::for_owner);
    std::filesystem::permissions(run.secret(), std::filesystem::perms(0600));
    Roster roster;
    roster.job = "7.0";
    roster.first_placement = {0};
    roster.candidates = {0, 1};
    for (const char* name : {"n0", "n1"})
      roster.nodes.push_back({name, "127.0.0.1", control::test::free_port(), "A"});
    ports = {roster.nodes[0].port, roster.nodes[1].port};
    files::replace_atomically(run.nodes(), to_json_text(roster));
  }
  control::test::Folder folder;
  RunDir run;
  Key secret;
  std::vector<int> ports;
  control::test::LoopThread thread;
};

TEST_F(CallerTest, TheNextAgentIsAskedWhenOneIsGoneOrKnowsNoLeader) {
  auto second = thread.call([&] {
    return std::make_unique<Clerk>(thread.loop, ports[1], secret, OrderTaken{"a", true, "done", false});
  });
  const Order order{"a", Order::Verb::evict, "n1", "me@here"};
  EXPECT_EQ(give_order(run, order, 10s).says, "done") << "the first agent does not exist";
  auto first = thread.call([&] {
    return std::make_unique<Clerk>(thread.loop, ports[0], secret, OrderTaken{"a", false, "no leader", true});
  });
  EXPECT_EQ(give_order(run, order, 10s).says, "done") << "the first agent knows no leader";
  thread.call([&] {
    const auto* heard = std::get_if<Order>(&second->heard.back());
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->verb, Order::Verb::evict);
    EXPECT_EQ(heard->node, "n1");
    EXPECT_EQ(std::get<Hello>(second->heard.front()).role, Hello::Role::caller);
    first.reset(), second.reset();
  });
}

TEST_F(CallerTest, NobodyAnswersIsAnErrorInTime) {
  try {
    give_order(run, {"a", Order::Verb::save, "", ""}, 500ms);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::transient);
    EXPECT_THAT(error.what(), HasSubstr("not confirmed"));
  }
}

TEST_F(CallerTest, AFaultIsForOneAgent) {
  auto second = thread.call([&] {
    return std::make_unique<Clerk>(thread.loop, ports[1], secret,
                                   OrderTaken{"", true, "rank 3 is stopped", false});
  });
  EXPECT_EQ(inject(run, "n1", {"stop_rank", 3, 0, 1}, 5s).says, "rank 3 is stopped");
  EXPECT_THROW(inject(run, "n0", {"stop_rank", 0, 0, 1}, 300ms), Error);
  EXPECT_THROW(inject(run, "n9", {"stop_rank", 0, 0, 1}, 300ms), Error);
  thread.call([&] { second.reset(); });
}

}  // namespace
}  // namespace holdfast::launcher

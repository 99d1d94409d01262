// The link of a rank to its agent, which the test simulates.
#include "src/train/common/agent_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/control/message.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::control {
namespace {

using testing::ElementsAre;
using train::make_rank_link;
using namespace std::chrono_literals;

/// The messages that an agent receives; the test sends its answers.
struct FakeAgent {
  FakeAgent(RealLoop& loop, const Address& address, const Key& secret)
      : listener(loop, address, secret, [this](ChannelPtr accepted) {
          channel = std::move(accepted);
          channel->handle({nullptr,
                           [this](std::string_view text) {
                             std::string why;
                             auto message = decode(text, why);
                             ASSERT_TRUE(message) << why;
                             if (const auto* now = std::get_if<RankProgress>(&*message)) {
                               progress = *now;
                               ++beats;
                             } else
                               heard.push_back(*message);
                           },
                           [this](const std::string&) { gone = true; }});
        }) {}
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& message : heard)
      if (const auto* m = std::get_if<T>(&message)) out.push_back(*m);
    return out;
  }
  void say(const Message& message) { channel->send(encode(message)); }
  ChannelPtr channel;
  std::vector<Message> heard;
  RankProgress progress;
  int beats = 0;
  bool gone = false;
  Listener listener;
};

class RankLinkTest : public testing::Test {
 protected:
  RankLinkTest() {
    const Key key = random_key();
    secret = key;
    place.rank = 3, place.world = 4, place.local_rank = 1, place.ranks_per_node = 2, place.term = 2,
    place.attempt = 5;
    place.node = "dgx001";
    place.run_dir = folder.path;
    place.agent_socket = folder.path / "agent.sock";
    place.key_file = folder.path / "key";
    files::create_exclusively(place.key_file, to_hex(rank_key(key, {3, 5})) + "\n", files::for_owner);
    start_agent();
  }
  ~RankLinkTest() override {
    link.reset();
    stop_agent();
    loop.end();
  }
  void start_agent() {
    loop.call([this] { agent = std::make_unique<FakeAgent>(loop.loop, place.agent_socket, secret); });
  }
  void stop_agent() {
    loop.call([this] { agent.reset(); });
  }
  void connect() {
    link = make_rank_link(place);
    ASSERT_TRUE(until([this] { return agent->beats > 0; }));
  }
  bool until(const std::function<bool()>& there) { return loop.until(there); }
  void say(const Message& message) {
    loop.call([&] { agent->say(message); });
  }

  test::Folder folder;
  Key secret{};
  RankEnv place;
  std::unique_ptr<FakeAgent> agent;
  test::LoopThread loop;
  std::unique_ptr<RankLink> link;
};

TEST_F(RankLinkTest, SaysWhoItIsAndHowFarItHasCome) {
  connect();
  EXPECT_TRUE(link->supervised());
  loop.call([this] {
    const auto hellos = agent->all<Hello>();
    ASSERT_EQ(hellos.size(), 1u);
    EXPECT_EQ(hellos[0].role, Hello::Role::rank);
    EXPECT_EQ(hellos[0].node, "dgx001");
    EXPECT_EQ(hellos[0].rank, 3);
    EXPECT_EQ(hellos[0].attempt, 5);
    EXPECT_EQ(hellos[0].term, 2);
    EXPECT_EQ(hellos[0].pid, ::getpid());
    EXPECT_TRUE(std::holds_alternative<Hello>(agent->heard.front()));
    EXPECT_EQ(agent->channel->proved_rank(), (RankId{3, 5}));
  });
  link->restored({17, "shared", "00ff", ""});
  link->progress(18, Phase::backward);
  EXPECT_TRUE(
      until([this] { return agent->progress.step == 18 && agent->progress.phase == Phase::backward; }));
  EXPECT_EQ(loop.call([this] { return agent->all<RankRestored>().at(0).from.step; }), 17);
}

TEST_F(RankLinkTest, OutcomeOfAVote) {
  connect();
  link->vote(20, true, R"({"shard":1})", 0);
  link->vote(30, false, "disk full", 0);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  loop.call([this] {
    const auto votes = agent->all<RankVote>();
    EXPECT_EQ(votes[0].payload, R"({"shard":1})");
    EXPECT_EQ(votes[0].rank, 3);
    EXPECT_FALSE(votes[1].ok);
  });
  EXPECT_FALSE(link->wait_commit(20, Deadline::in(20ms))) << "the deadline passes";
  say(CommitOutcome{5, 20, true, ""});
  EXPECT_TRUE(link->wait_commit(20, Deadline::in(10s)));
  say(CommitOutcome{5, 30, false, "rank 3: disk full"});
  EXPECT_FALSE(link->wait_commit(30, Deadline::in(10s)));
  EXPECT_TRUE(link->wait_commit(20, Deadline::in(0s))) << "it stays known";
}

TEST_F(RankLinkTest, LastWordsWaitUntilTheyAreTaken) {
  connect();
  std::atomic<bool> returned = false;
  std::thread rank([&] {
    link->finished(FinalState{9, 900, 2.5, "ab"});
    returned = true;
  });
  EXPECT_TRUE(until([this] { return agent->all<RankFinished>().size() == 1; }));
  loop.settle();
  EXPECT_FALSE(returned);
  say(Taken{});
  rank.join();
  EXPECT_EQ(loop.call([this] { return agent->all<RankFinished>().at(0).state->tokens; }), 900);
}

TEST_F(RankLinkTest, FailureReachesTheAgent) {
  connect();
  std::thread rank([&] { link->failed(93, "the loss is not a number\xff"); });
  EXPECT_TRUE(until([this] { return agent->all<RankFailed>().size() == 1; }));
  say(Taken{});
  rank.join();
  EXPECT_EQ(loop.call([this] { return agent->all<RankFailed>().at(0).exit_code; }), 93);
}

TEST_F(RankLinkTest, NewAgentHearsWhatHasHadNoAnswer) {
  connect();
  link->restored({10, "shared", "00ff", ""});
  link->vote(20, true, "a", 0);
  link->vote(30, true, "b", 0);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  say(CommitOutcome{5, 20, true, ""});
  ASSERT_TRUE(link->wait_commit(20, Deadline::in(10s)));
  stop_agent();
  link->vote(40, true, "c", 0);  // said to nobody
  start_agent();
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  loop.call([this] {
    EXPECT_EQ(agent->all<Hello>().size(), 1u);
    EXPECT_EQ(agent->all<RankRestored>().size(), 1u);
    std::vector<std::int64_t> steps;
    for (const auto& vote : agent->all<RankVote>()) steps.push_back(vote.step);
    EXPECT_THAT(steps, ElementsAre(30, 40)) << "step 20 has its outcome";
  });
  say(CommitOutcome{5, 30, true, ""});
  EXPECT_TRUE(link->wait_commit(30, Deadline::in(10s)));
}

TEST_F(RankLinkTest, LastWordsOutliveTheAgent) {
  connect();
  stop_agent();
  std::thread rank([&] { link->finished(std::nullopt); });
  start_agent();
  EXPECT_TRUE(until([this] { return agent->all<RankFinished>().size() == 1; }));
  stop_agent();  // it dies before it has taken them
  start_agent();
  EXPECT_TRUE(until([this] { return agent->all<RankFinished>().size() == 1; }));
  say(Taken{});
  rank.join();
  EXPECT_FALSE(loop.call([this] { return agent->all<RankFinished>().at(0).state.has_value(); }));
}

TEST_F(RankLinkTest, WhatOnlyTheTrainerSays) {
  connect();
  link->restored({10, "peer", "00ff", "a note"});
  link->progress(20, Phase::optimizer);
  link->computed(0.25);
  link->waited({20, 1000, 2, 5, {{4, 9}, {0, 1}}});
  link->vote(20, true, "{\n}", 1.5);
  std::thread rank([&] { link->doubt(18, {4, 5}, "replicas", "they differ"); });
  ASSERT_TRUE(until([this] { return agent->all<RankDoubt>().size() == 1; }));
  loop.call([this] {
    EXPECT_EQ(agent->all<RankRestored>().at(0).from.digest, "00ff");
    EXPECT_EQ(agent->all<RankRestored>().at(0).from.note, "a note");
    EXPECT_EQ(agent->all<RankVote>().at(0).stall_us, 1'500'000);
    EXPECT_EQ(agent->all<RankVote>().at(0).payload, "{ }");
    ASSERT_EQ(agent->all<RankWaits>().size(), 1u);
    EXPECT_EQ(agent->all<RankWaits>()[0].waits.longest.at(0).us, 9);
    const auto doubt = agent->all<RankDoubt>().at(0);
    EXPECT_EQ(doubt.step, 18);
    EXPECT_THAT(doubt.accused, ElementsAre(4, 5));
    EXPECT_EQ(agent->progress.step, 20) << "it is said before";
    EXPECT_EQ(agent->progress.compute_us, 250'000);
  });
  stop_agent();
  start_agent();
  ASSERT_TRUE(until([this] { return agent->all<RankDoubt>().size() == 1; })) << "it had no answer";
  EXPECT_TRUE(loop.call([this] { return agent->all<RankWaits>().empty(); })) << "it is said once";
  say(Taken{});
  rank.join();
}

TEST_F(RankLinkTest, AStepIsNoRestoredState) {
  connect();
  link->progress(0, Phase::starting);
  link->progress(7, Phase::restoring);
  ASSERT_TRUE(until([this] { return agent->progress.step == 7; }));
  const int before = loop.call([this] { return agent->beats; });
  ASSERT_TRUE(until([&] { return agent->beats > before; }));
  EXPECT_TRUE(loop.call([this] { return agent->all<RankRestored>().empty(); }));
}

TEST_F(RankLinkTest, AFaultIsToBeInjectedOnce) {
  connect();
  EXPECT_FALSE(link->take_injection());
  say(Inject{"slow", 3, 1.5, 77});
  std::optional<Injection> fault;
  ASSERT_TRUE(until([&] { return (fault = link->take_injection()).has_value(); }));
  EXPECT_EQ(fault->fault, "slow");
  EXPECT_EQ(fault->seconds, 1.5);
  EXPECT_EQ(fault->seed, 77u);
  EXPECT_FALSE(link->take_injection());
}

TEST_F(RankLinkTest, ADrainIsGivenOutOnce) {
  connect();
  EXPECT_FALSE(link->take_orders().drain);
  const auto taken = [this] {
    std::optional<Drain> drain;
    EXPECT_TRUE(until([&] { return (drain = link->take_orders().drain).has_value(); }));
    return drain.value_or(Drain{});
  };
  const auto heard_nothing_new = [this](std::int64_t step) {  // what was said before the outcome is known
    say(CommitOutcome{5, step, true, ""});
    EXPECT_TRUE(link->wait_commit(step, Deadline::in(10s)));
    return !link->take_orders().drain;
  };
  const Drain save{false, "the batch host was lost"}, stop{true, "SIGTERM"};
  say(save);
  EXPECT_EQ(taken(), save);
  stop_agent();
  start_agent();
  ASSERT_TRUE(until([this] { return agent->beats > 0; }));
  say(save);  // its new agent says it again
  EXPECT_TRUE(heard_nothing_new(20));
  say(stop);
  EXPECT_EQ(taken(), stop);
  say(save);
  say(stop);
  say(Drain{true, "another signal"});
  EXPECT_TRUE(heard_nothing_new(30)) << "the run ends already";
}

TEST_F(RankLinkTest, AnOrderIsConfirmedWhenTheTrainerHasTakenIt) {
  connect();
  say(Drain{false, "an order"});
  say(Pause{true});
  say(CommitOutcome{5, 20, true, ""});
  ASSERT_TRUE(link->wait_commit(20, Deadline::in(10s)));
  EXPECT_TRUE(loop.call([this] { return agent->all<RankHeard>().empty(); })) << "it has not asked";
  const Orders told = link->take_orders();
  EXPECT_TRUE(told.drain);
  EXPECT_TRUE(told.pause);
  ASSERT_TRUE(until([this] { return agent->all<RankHeard>().size() == 2; }));
  loop.call([this] {
    const auto heard = agent->all<RankHeard>();
    EXPECT_EQ(heard[0].what, RankHeard::What::save);
    EXPECT_EQ(heard[1].what, RankHeard::What::pause);
  });
}

TEST_F(RankLinkTest, ADrainThatEscalatesBeforeItIsTaken) {
  connect();
  say(Drain{false, "the batch host was lost"});
  say(Drain{true, "SIGTERM"});
  say(CommitOutcome{5, 20, true, ""});
  ASSERT_TRUE(link->wait_commit(20, Deadline::in(10s)));
  EXPECT_EQ(link->take_orders().drain, (Drain{true, "SIGTERM"}));
  EXPECT_FALSE(link->take_orders().drain);
}

TEST_F(RankLinkTest, NonsenseFromTheAgentIsPassedOver) {
  connect();
  loop.call([this] {
    agent->channel->send("nonsense");
    agent->channel->send(R"({"m":"commit_outcome","step":20})");
    agent->channel->send(encode(Finish{0}));
    agent->channel->send(encode(CommitOutcome{5, 20, true, ""}));
  });
  EXPECT_TRUE(link->wait_commit(20, Deadline::in(10s)));
}

TEST(RankLink, BareMode) {
  RankEnv without_agent;
  without_agent.run_dir = "/nowhere";
  for (const auto& place : {std::optional<RankEnv>(), std::optional(without_agent)}) {
    const auto link = make_rank_link(place);
    EXPECT_FALSE(link->supervised());
    link->progress(1, Phase::forward);
    link->restored({});
    link->vote(1, true, "", 0);
    const auto begin = Clock::now();
    EXPECT_FALSE(link->wait_commit(1, Deadline::in(std::chrono::hours(1))));
    EXPECT_FALSE(link->take_orders().drain);
    link->finished(FinalState{});
    link->failed(1, "nobody listens");
    EXPECT_LT(Clock::now() - begin, 5s);
  }
}

TEST_F(RankLinkTest, NobodyAnswers) {
  stop_agent();
  try {
    make_rank_link(place, 300ms);
    FAIL() << "there is no agent";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::transient);
    EXPECT_THAT(error.what(), testing::HasSubstr("No such file"));
  }
  start_agent();
  connect();  // a process may try again
}

TEST(RankLink, NeedsItsKey) {
  const test::Folder folder;
  RankEnv place;
  place.run_dir = folder.path;
  place.agent_socket = folder.path / "agent.sock";
  EXPECT_THROW(make_rank_link(place), Error);
}

}  // namespace
}  // namespace holdfast::control

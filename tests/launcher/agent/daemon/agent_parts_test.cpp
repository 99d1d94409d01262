// The parts of an agent, each alone: what it does to the processes of its node, and what it tells the leader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/daemon/leader_link.hpp"
#include "launcher/agent/daemon/rank_peers.hpp"
#include "launcher/agent/daemon/rank_starter.hpp"
#include "tests/control/by_hand.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using namespace std::chrono_literals;
using control::test::FakeChannel;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

struct FakeNode final : NodeSystem {
  pid_t start(Command command, ChildHooks with) override {
    started.push_back(std::move(command));
    hooks.push_back(std::move(with));
    return 100 + static_cast<pid_t>(started.size());
  }
  void watch(pid_t, std::function<void()>) override {}
  bool awaits(pid_t pid) const override { return awaited.contains(pid); }
  bool is_guardians(pid_t) const override { return true; }
  bool signal(pid_t pid, int signal) override {
    if (signal != 0) signals.emplace_back(pid, signal);
    return true;
  }
  std::vector<RunProcess> processes(bool) const override { return running; }
  std::optional<ProcessFacts> process(pid_t pid) const override { return ProcessFacts{1, pid, false}; }
  [[nodiscard]] control::Loop::Handle stacks(pid_t, const std::filesystem::path&,
                                             std::function<void(std::string)>) override {
    return nullptr;
  }
  [[nodiscard]] control::Loop::Handle why_left(std::vector<RunProcess>,
                                               std::function<void(std::string)> done) override {
    done("they wait for storage");
    return nullptr;
  }
  bool look_outside(int, std::vector<WatchedRank>, std::function<void(const Growths&)>) override {
    return true;
  }
  void remove_flight_records(int) override {}
  int free_port(int first) const override { return first; }
  void check(bool, std::function<void(const control::NodeHealth&)>) override {}
  void replace_agent() override {}
  void tell_guardian(bool over) override { leaves = over; }
  void inject(const control::Inject&) override {}

  std::vector<Command> started;
  std::vector<ChildHooks> hooks;
  std::vector<RunProcess> running;
  std::set<pid_t> awaited;
  std::vector<std::pair<pid_t, int>> signals;
  bool leaves = false;
};

/// Parts of the agent of n0, which has a leader of term 1 and attempt 2.
class AgentParts : public testing::Test {
 protected:
  AgentParts() {
    files::make_private_folder(in.scratch.folder);
    leadership.admit(2);
  }
  static AgentInput input(const std::filesystem::path& folder) {
    AgentInput in{.run = {folder / "run"},
                  .scratch = {folder / "scratch", "n0"},
                  .roster = {},
                  .config = {},
                  .cluster = {},
                  .secret = {},
                  .local_level = {},
                  .signs = {}};
    in.config.rank.command = {"python3", "train.py"};
    in.signs.nvml.clear();
    in.roster.nodes.emplace_back().name = "n0";
    in.roster.ranks_per_node = 2;
    in.roster.job = "7.0";
    return in;
  }
  static control::StartRanks start_of(int attempt) {
    control::StartRanks order;
    order.attempt = attempt;
    order.ranks_per_node = 2;
    order.nodes = {"n0"};
    return order;
  }
  LocalRank& rank_runs(int number, pid_t pid) {
    LocalRank& rank = here.ranks.at(number, 2);
    rank.pid = pid;
    rank.started = true;
    return rank;
  }
  template <class Kind>
  int count() const {
    return static_cast<int>(
        std::ranges::count_if(told, [](const auto& m) { return std::holds_alternative<Kind>(m); }));
  }

  control::test::Folder folder;
  AgentInput in = input(folder.path);
  control::test::HandLoop loop;
  FakeNode node;
  std::shared_ptr<slurm::FakeCluster> slurm = std::make_shared<slurm::FakeCluster>("n[0-1]");
  LeadershipState leadership{0, {}, 1, 0, 0};
  std::vector<control::Message> told;
  std::vector<control::Drain> requested;
  int leavings = 0;
  std::optional<int> left_with;
  AgentHere here{.loop = loop,
                 .system = node,
                 .in = in,
                 .slurm = slurm,
                 .leadership = leadership,
                 .tell_leader = [this](const control::Message& m) { told.push_back(m); },
                 .renew_scratch = [] {}};
  RankEnder ender{here,
                  {.request_drain = [this](const control::Drain& what) { requested.push_back(what); },
                   .leaving = [this] { ++leavings; },
                   .left = [this](int code) { left_with = code; }}};
  RankKeeper keeper{here, ender};
  RankStarter starter{here, keeper};
};

TEST_F(AgentParts, ClearKillsUntilNothingIsLeftAndThenTellsTheLeader) {
  node.running = {{10, 1, 0, true, "python3"}, {11, 2, 0, true, "python3"}};
  node.awaited = {12};
  ender.clear(2, true, {12});
  EXPECT_THAT(node.signals, UnorderedElementsAre(testing::Pair(10, SIGKILL), testing::Pair(12, SIGKILL)));
  node.running.erase(node.running.begin());
  loop.pass(500ms);
  EXPECT_EQ(count<control::Cleared>(), 0) << "the kernel has not taken back all that process 12 had";
  loop.pass(1);
  EXPECT_EQ(count<control::ProcessesLeft>(), 1);
  node.awaited.clear();
  loop.pass(1);
  EXPECT_EQ(count<control::Cleared>(), 1);
}

TEST_F(AgentParts, ARankGetsSigtermOnceAndNotWhereSlurmHasSentIt) {
  for (int rank = 0; rank < 2; ++rank) rank_runs(rank, 50 + rank);
  slurm->processes = {50};
  ender.signalled(slurms_sigterm());
  ender.signalled(SIGTERM);
  EXPECT_THAT(requested, SizeIs(1)) << "both are the same signal of SLURM";
  EXPECT_THAT(node.signals, IsEmpty()) << "SLURM may be slower";
  loop.pass(1);
  EXPECT_THAT(node.signals, ElementsAre(testing::Pair(51, SIGTERM)));
  EXPECT_EQ(count<control::RankHeard>(), 2);
  ender.stop_ranks();
  loop.pass(10);
  EXPECT_THAT(node.signals, SizeIs(1));
}

TEST_F(AgentParts, TheAgentLeavesWhenAllHaveEndedOrTheirTimeIsOver) {
  node.running = {{50, 2, 0, true, "python3"}};
  rank_runs(0, 50);
  ender.leave(1);
  ender.leave(0);
  EXPECT_EQ(leavings, 1);
  EXPECT_TRUE(node.leaves);
  EXPECT_THAT(node.signals, ElementsAre(testing::Pair(50, SIGTERM)));
  loop.pass(std::chrono::seconds(in.config.supervise.stop_s));
  EXPECT_FALSE(left_with);
  EXPECT_THAT(node.signals, Contains(testing::Pair(50, SIGKILL)));
  node.running.clear();
  loop.pass(1);
  EXPECT_EQ(left_with, 1);
}

TEST_F(AgentParts, OrdersThatHoldAreToldToARankThatConnects) {
  const auto link = std::make_shared<FakeChannel>();
  keeper.pass_on(control::Drain{false, "save"});
  keeper.connected(rank_runs(0, 50), link);
  EXPECT_THAT(link->sent, ElementsAre(control::encode(control::Drain{false, "save"})));
  keeper.admit(3);
  keeper.connected(here.ranks.at(0, 3), link);
  EXPECT_THAT(link->sent, SizeIs(1)) << "it was for the ranks of attempt 2";
}

TEST_F(AgentParts, ANewLeaderIsToldAllThatStillHolds) {
  FakeChannel from;
  LocalRank& rank = rank_runs(0, 50);
  keeper.hear(rank, from, control::RankFailed{7, 9, 1, "it diverged"});
  EXPECT_THAT(from.sent, ElementsAre(control::encode(control::Taken{}))) << "what it waits for";
  keeper.hooks_of(0, 2).ended(1);
  ASSERT_EQ(count<control::RankFailed>(), 1);
  const auto& failed = std::get<control::RankFailed>(told.front());
  EXPECT_EQ(failed.rank, 0) << "a message cannot speak for another rank";
  EXPECT_EQ(failed.attempt, 2);
  EXPECT_TRUE(std::holds_alternative<control::RankExited>(told.back())) << "after the signs of the node";
  told.clear();
  keeper.tell_all();
  EXPECT_EQ(count<control::RankStarted>() + count<control::RankFailed>() + count<control::RankExited>(), 3);
  EXPECT_THAT(keeper.give_up_older(3), IsEmpty()) << "it does not live";
  told.clear();
  keeper.tell_all();
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(AgentParts, RanksAreStartedOnceInAnAttempt) {
  control::StartRanks order = start_of(1);
  starter.start(order);
  EXPECT_THAT(node.started, IsEmpty()) << "of an older attempt";
  order.attempt = 2;
  rank_runs(1, 50);  // by an agent before this one
  starter.start(order);
  starter.start(order);
  ASSERT_THAT(node.started, SizeIs(1));
  EXPECT_THAT(*node.started[0].environment, Contains("HOLDFAST_RANK=0"));
  node.hooks[0].runs();
  EXPECT_EQ(count<control::RankStarted>(), 1);
  EXPECT_THAT(keeper.give_up_older(3), UnorderedElementsAre(50, 101));
}

TEST_F(AgentParts, RanksThatSpeakMpiWaitForTheirPmixServer) {
  here.promises.speaks_mpi = true;
  starter.start(start_of(2));
  ASSERT_THAT(node.started, SizeIs(1));
  EXPECT_EQ(node.started[0].argv.front(), "holdfast-pmix");
  starter.hear(control::PmixRank{1, 2, {"PMIX_RANK=1"}});
  ASSERT_THAT(node.started, SizeIs(2));
  EXPECT_THAT(*node.started[1].environment, Contains("PMIX_RANK=1"));
  node.hooks[0].ended(3);
  EXPECT_EQ(count<control::RankFailed>(), 1) << "rank 0 will never start";
  EXPECT_EQ(count<control::NodeSigns>(), 1);
}

TEST_F(AgentParts, OneProcessOfARankIsHeard) {
  RankPeers peers(here, keeper);
  rank_runs(0, 50);
  const auto speaker = std::make_shared<FakeChannel>(), other = std::make_shared<FakeChannel>();
  control::Hello hello;
  hello.role = control::Hello::Role::rank;
  hello.rank = 0;
  hello.attempt = 2;
  hello.pid = 50;
  EXPECT_TRUE(peers.accept(speaker, hello));
  hello.pid = 51;
  EXPECT_TRUE(peers.accept(other, hello));
  EXPECT_THAT(other->sent, SizeIs(1)) << "it is told so";
  peers.hear(*other, control::RankFinished{0, 2, {}});
  EXPECT_THAT(told, IsEmpty());
  peers.hear(*speaker, control::RankFinished{0, 2, {}});
  EXPECT_EQ(count<control::RankFinished>(), 1);
}

control::Order order_called(const std::string& id) {
  control::Order order;
  order.id = id;
  return order;
}

TEST_F(AgentParts, TheLinkTellsEachLeaderOfADrainAndAnswersCallers) {
  LeaderLink link(here, starter, keeper, ender);
  link.request_drain({true, "SIGTERM"});
  const auto leader = std::make_shared<FakeChannel>(), caller = std::make_shared<FakeChannel>();
  link.pass_on(order_called("a"), caller);
  EXPECT_THAT(caller->sent, SizeIs(1)) << "there is no leader";
  link.follow(leader, {});
  EXPECT_THAT(leader->sent, Contains(control::encode(control::Drain{true, "SIGTERM"})));
  loop.pass(1);
  EXPECT_EQ(std::ranges::count(leader->sent, leader->sent.front()), 1 + 5) << "a heartbeat every 200 ms";
  link.pass_on(order_called("b"), caller);
  link.pass_on(order_called("c"), caller);
  link.hear(control::OrderTaken{"b", true, "done"});
  EXPECT_THAT(caller->sent, SizeIs(2));
  link.lost();
  EXPECT_THAT(caller->sent, SizeIs(3)) << "c may be recorded or not";
  EXPECT_THAT(link.channel(), nullptr);
}

}  // namespace
}  // namespace holdfast::launcher

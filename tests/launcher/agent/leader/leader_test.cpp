// A real leader over real sockets with simulated agents: orders and answers arrive.
#include "launcher/agent/leader/leader.hpp"
#include "launcher/agent/leader/old_logs.hpp"
#include "launcher/agent/ranks/rank_start.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "checkpoint/index/catalog.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/launcher/record/log_entry.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using namespace control;
using nlohmann::json;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// An agent that carries out orders at once. Used in the loop's thread only.
class FakeAgent {
 public:
  FakeAgent(RealLoop& loop, Roster::Node node, const Key& secret)
      : node_(std::move(node)),
        listener_(loop, TcpAddress{"127.0.0.1", node_.port}, secret,
                  [this](ChannelPtr channel) {
                    leader_ = std::move(channel);
                    leader_->handle({nullptr, [this](std::string_view text) { take(text); },
                                     [this](const std::string&) { leader_.reset(); }});
                  }),
        beats_(loop.every(Millis(50), [this] { beat(); })) {}
  void say(const Message& message) {
    if (leader_) leader_->send(encode(message));
  }
  std::vector<Message> heard;
  std::vector<SealedState> sealed = {};
  int attempt = 0;
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& message : heard)
      if (const auto* m = std::get_if<T>(&message)) out.push_back(*m);
    return out;
  }

 private:
  void beat() {
    Heartbeat beat{node_.name, attempt, {}};
    for (const auto& start : all<StartRanks>())
      if (start.attempt == attempt)
        for (const int rank : ranks_of(start)) beat.ranks.push_back({rank, attempt, 5, Phase::forward});
    say(beat);
  }
  void take(std::string_view text) {
    std::string why;
    const auto message = decode(text, why);
    ASSERT_TRUE(message) << why;
    if (std::holds_alternative<LeaderHeartbeat>(*message)) return;
    heard.push_back(*message);
    if (std::holds_alternative<Hello>(*message)) beat();
    if (std::holds_alternative<CheckNode>(*message)) say(NodeHealth{});
    if (const auto* clear = std::get_if<Clear>(&*message))
      attempt = clear->attempt, say(Cleared{attempt, 0, 0, sealed});
    if (const auto* start = std::get_if<StartRanks>(&*message))
      for (const int rank : ranks_of(*start)) say(RankStarted{rank, start->attempt, 4000 + rank});
  }
  static std::vector<int> ranks_of(const StartRanks& start) {
    std::vector<int> out;
    for (int i = 0; i < start.ranks_per_node; ++i) out.push_back(start.slot * start.ranks_per_node + i);
    return out;
  }
  Roster::Node node_;
  ChannelPtr leader_;
  Listener listener_;
  Loop::Handle beats_;
};

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() : run{folder.path} {
    for (const auto& path : {run.terms(), run.events(), run.checkpoints(), run.logs()})
      files::fs::create_directories(path);
    write_settings(100);
    config.rank.command = {"some-program"};
    config.supervise.heartbeat_ms = 50;
    config.supervise.node_silence_ms = 1500;
    roster.job = "7.0", roster.ranks_per_node = 2, roster.first_placement = {0, 1},
    roster.candidates = {2, 0, 1};
    roster.batch_host = 2;
    for (const char* name : {"n0", "n1", "n2"})
      roster.nodes.push_back({name, "127.0.0.1", control::test::free_port(), "A"});
    loop.call([this] {
      for (const auto& node : roster.nodes)
        agents.push_back(std::make_unique<FakeAgent>(loop.loop, node, secret));
    });
  }
  ~LeaderTest() override {
    loop.call([this] { leader.reset(), agents.clear(); });
    loop.end();
  }
  void write_settings(int steps) const {
    config::RunConfig settings;
    settings.train.steps = steps;
    files::replace_atomically(run.config(), config::to_toml(settings));
  }
  void lead(int term) {
    loop.call([&] {
      ASSERT_TRUE(take_term(run, term, "n2"));
      leader = std::make_unique<Leader>(loop.loop, run, roster, config, secret, cluster, term, 2,
                                        start_term(run, roster, term, 2), LeadershipState::Heard{},
                                        [this](const std::string& why) { resigned = why; });
    });
  }
  FakeAgent& agent(int n) { return *agents[n]; }
  bool until_event(const std::string& kind, std::size_t count = 1) {
    return loop.until([&] {
      std::size_t found = 0;
      for (const auto& event : read_events(run)) found += kind_of(event.event) == kind;
      return found >= count;
    });
  }
  bool everybody_hears_finish(int code) {
    return loop.until([&] {
      return std::all_of(agents.begin(), agents.end(), [&](const auto& a) {
        return !a->template all<Finish>().empty() && a->template all<Finish>()[0].exit_code == code;
      });
    });
  }

  control::test::Folder folder;
  RunDir run;
  Key secret = random_key();
  config::RunConfig config;
  Roster roster;
  std::shared_ptr<slurm::FakeCluster> cluster = std::make_shared<slurm::FakeCluster>("n[0-2]");
  std::vector<std::unique_ptr<FakeAgent>> agents;
  std::unique_ptr<Leader> leader;
  std::optional<std::string> resigned;
  control::test::LoopThread loop;
};

TEST(OldLogs, OfTheFirstAndTheLastAttemptsAreKept) {
  const control::test::Folder folder;
  const RunDir run{folder.path};
  for (int attempt = 1; attempt <= 7; ++attempt) {
    files::fs::create_directories(attempt_logs(run, attempt));
    files::replace_atomically(rank_log(run, attempt, 0), "text");
  }
  files::replace_atomically(agent_log(run, "n0"), "text");
  remove_old_logs(run, 7, 0);
  EXPECT_EQ(files::list(run.logs()).size(), 8u) << "0 keeps all";
  remove_old_logs(run, 7, 3);
  EXPECT_THAT(files::list(run.logs()), testing::ElementsAre("agent-n0.log", "attempt-0001", "attempt-0005",
                                                            "attempt-0006", "attempt-0007"));
}

TEST_F(LeaderTest, LeadsARunToItsEnd) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] {
    const auto hello = agent(0).all<Hello>();
    ASSERT_EQ(hello.size(), 1u);
    EXPECT_EQ(hello[0].role, Hello::Role::leader);
    EXPECT_EQ(hello[0].node, "n2");
    EXPECT_EQ(hello[0].term, 1);
    for (int n = 0; n < 2; ++n) {
      const auto start = agent(n).all<StartRanks>();
      ASSERT_EQ(start.size(), 1u);
      EXPECT_EQ(start[0].nodes.size(), 2u);
      EXPECT_EQ(start[0].attempt, 1);
      EXPECT_EQ(start[0].master, "127.0.0.1");
      EXPECT_EQ(start[0].ranks_per_node, 2);
      EXPECT_EQ(start[0].slot, n);
    }
    EXPECT_TRUE(agent(2).all<StartRanks>().empty()) << "a spare";
    EXPECT_EQ(agent(2).all<Clear>().size(), 1u) << "it may have been lost, and have old ranks";
    agent(0).say(RankRestored{0, 1, {0, "fresh", "00", ""}});
    agent(0).say(RankFinished{0, 1, FinalState{5, 50, 1.5, "ab"}});
    for (int rank = 0; rank < 4; ++rank) agent(rank / 2).say(RankExited{rank, 1, 0});
  });
  EXPECT_TRUE(everybody_hears_finish(0));
  const json result = json::parse(files::read_text(run.result()));
  EXPECT_EQ(result["status"], "done");
  EXPECT_EQ(result["state_digest"], "ab");
  EXPECT_EQ(result_of(replay(run)), result) << "the log says the same";
  EXPECT_FALSE(resigned);
}

TEST_F(LeaderTest, LostNodeIsReplaced) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] { agents[1].reset(); });
  ASSERT_TRUE(until_event("placement_verified", 2));
  loop.call([this] {
    const auto start = agent(2).all<StartRanks>();
    ASSERT_EQ(start.size(), 1u);
    EXPECT_EQ(start[0].slot, 1);
    EXPECT_EQ(start[0].attempt, 2);
  });
}

TEST_F(LeaderTest, EachJobKeepsItsSettingsAndNamesWhatIsNew) {
  const auto start = [&](int term, const std::string& job) {
    roster.job = job;
    ASSERT_TRUE(take_term(run, term, "n2"));
    start_term(run, roster, term, 2);
  };
  const auto changes = [&] {
    std::vector<events::SettingsChanged> out;
    for (const auto& entry : read_events(run))
      if (const auto* change = std::get_if<events::SettingsChanged>(&entry.event)) out.push_back(*change);
    return out;
  };
  start(1, "7.0");
  start(2, "7.0");
  start(3, "7.1");
  EXPECT_TRUE(changes().empty()) << "the first job, a takeover, the same again";
  write_settings(200);
  start(4, "8.0");
  ASSERT_EQ(changes().size(), 1u);
  const std::map<std::string, events::SettingValues> wanted = {{"train.steps", {"100", "200"}}};
  EXPECT_EQ(changes()[0].settings, wanted);
  start(5, "8.0");
  EXPECT_EQ(changes().size(), 1u);
  EXPECT_THAT(files::list(run.configs()), UnorderedElementsAre("0001.toml", "0003.toml", "0004.toml"));
  EXPECT_EQ(config::load(run.configs() / "0003.toml").config.train.steps, 100);
  EXPECT_EQ(config::load(run.configs() / "0004.toml").config.train.steps, 200);
}

TEST_F(LeaderTest, CommitOutcomeOfTheLastLeaderReachesEverybody) {
  Journal last(run, 1);
  last.write(test::entry({{"event", "leader_elected"}, {"job", "7.0"}}).event);
  last.write(test::entry({{"event", "run_finished"},
                          {"exit_code", 93},
                          {"status", "failed"},
                          {"why", "the loss is not a number"}})
                 .event);
  lead(2);
  EXPECT_TRUE(everybody_hears_finish(93));
  EXPECT_EQ(json::parse(files::read_text(run.result()))["exit_code"], 93);
}

TEST_F(LeaderTest, AgentThatComesLateIsToldTheEnd) {
  loop.call([this] { agents[2].reset(); });
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] {
    agent(0).say(RankFailed{1, 1, 2, "no such model"});
    agent(0).say(RankExited{1, 1, 2});
  });
  ASSERT_TRUE(until_event("run_finished"));
  loop.call([this] { agents[2] = std::make_unique<FakeAgent>(loop.loop, roster.nodes[2], secret); });
  EXPECT_TRUE(everybody_hears_finish(2));
}

TEST_F(LeaderTest, HigherTermEndsTheLeadershipBeforeTheNextDecision) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  ASSERT_TRUE(take_term(run, 2, "n0"));
  const auto before = read_events(run).size();
  loop.call([this] { agent(0).say(RankExited{0, 1, 137}); });
  ASSERT_TRUE(loop.until([this] { return resigned.has_value(); }));
  EXPECT_THAT(*resigned, HasSubstr("higher term"));
  EXPECT_EQ(read_events(run).size(), before) << "nothing was decided any more";
}

TEST_F(LeaderTest, GivesWayWhenStorageAnswersTheOthersOnly) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  const NodeSigns gone{{{"shared_gone", -1, 0, 0, "/run"}}}, back{{{"shared_back", -1, 0, 0, "/run"}}};
  loop.call([&] {
    for (int n = 0; n < 3; ++n) agent(n).say(gone);
  });
  std::this_thread::sleep_for(Millis(300));
  loop.call([this] { EXPECT_FALSE(resigned) << "nobody else could write either"; });
  loop.call([&] { agent(0).say(back); });
  ASSERT_TRUE(loop.until([this] { return resigned.has_value(); }));
  EXPECT_THAT(*resigned, HasSubstr("storage does not answer n2"));
}

TEST_F(LeaderTest, LeadsOnWhereAgentsSeeTheSameStorageOneAfterTheOther) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  const NodeSigns gone{{{"shared_gone", -1, 0, 0, "/run"}}}, back{{{"shared_back", -1, 0, 0, "/run"}}};
  const auto say = [&](std::initializer_list<int> agents_in_order, const NodeSigns& signs) {
    for (const int n : agents_in_order) {
      loop.call([&] { agent(n).say(signs); });
      std::this_thread::sleep_for(Millis(300));
    }
  };
  say({2, 1, 0}, gone);
  say({0, 1, 2}, back);
  loop.call([this] { EXPECT_FALSE(resigned); });
}

TEST_F(LeaderTest, ADrainFindsItsWayFromAnyAgentToAllOfThem) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] {
    agent(0).say(RankRestored{0, 1, {4, "shared", "00", ""}});
    agent(1).say(Drain{true, "SIGTERM"});
    agent(2).say(Drain{true, "SIGTERM"});
  });
  ASSERT_TRUE(until_event("drain"));
  const auto told = [this](int n) { return agent(n).all<Drain>().size(); };
  ASSERT_TRUE(loop.until([&] { return told(0) == 1 && told(1) == 1 && told(2) == 1; }));
  loop.call([this] {
    const Drain order = agent(0).all<Drain>()[0];
    EXPECT_EQ(order, (Drain{true, "SIGTERM", order.until}));
    EXPECT_GE(order.until, config.checkpoint.drain_s) << "in s since 1970";
  });
  // A restarted agent gets it again.
  loop.call([this] {
    agents[1].reset();  // its port
    agents[1] = std::make_unique<FakeAgent>(loop.loop, roster.nodes[1], secret);
  });
  ASSERT_TRUE(loop.until([&] { return told(1) == 1; }));
  loop.call([this] {
    agent(0).say(RankFailed{0, 1, 75, "told to end; step 9 is durable"});
    for (int rank = 0; rank < 4; ++rank) agent(rank / 2).say(RankExited{rank, 1, 75});
  });
  EXPECT_TRUE(everybody_hears_finish(75));
  EXPECT_EQ(json::parse(files::read_text(run.result()))["status"], "drained");
  EXPECT_TRUE(cluster->requeued.empty() && cluster->cancelled.empty()) << "that is the batch script's";
}

TEST_F(LeaderTest, WithoutItsScriptTheJobIsPutBackByTheLeader) {
  roster.batch_host = 1;
  config.checkpoint.drain_s = 2;
  auto& job = cluster->add_job(7, "job", "n[0-2]");
  cluster->comments[7] = R"({"holdfast":1,"run":"made up","step":4,"state":"training"})";
  // Near for a leader that replaces the script, far enough for one that waits for the script's signal.
  job.end_time = unix_seconds() + 119;
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] {
    agent(0).say(RankRestored{0, 1, {4, "shared", "00", ""}});
    agents[1].reset();
  });
  ASSERT_TRUE(until_event("placement_verified", 2)) << "first the spare takes over";
  const auto drains = [this] {
    std::vector<bool> stops;
    for (const auto& event : read_events(run))
      if (const auto* drain = std::get_if<events::Drain>(&event.event)) stops.push_back(drain->stop);
    return stops;
  };
  // To save, because the batch host was lost; to stop, because SLURM says that a minute is left.
  ASSERT_TRUE(loop.until([&] { return drains() == std::vector<bool>{false, true}; }));
  cluster->controller(false);
  loop.call([this] { agents.erase(agents.begin() + 1); });
  EXPECT_TRUE(everybody_hears_finish(75)) << "after drain_s, as nobody saves here";
  ASSERT_TRUE(loop.until([&, before = cluster->unanswered.load()] { return cluster->unanswered > before; }));
  cluster->controller(true);
  loop.call([this] { leader.reset(); });  // waits until the job is requeued
  EXPECT_EQ(cluster->requeued, std::vector<slurm::JobId>{7});
  EXPECT_EQ(
      cluster->comments[7],
      R"({"holdfast":1,"run":"made up","step":4,"state":"the batch host is lost: see holdfast status"})");
  EXPECT_TRUE(cluster->cancelled.empty());
}

TEST_F(LeaderTest, ARepeatedVoteIsAnsweredAndNotDecidedAgain) {
  Journal last(run, 1);
  last.write(test::entry({{"event", "leader_elected"}, {"job", "7.0"}}).event);
  last.write(
      test::entry({{"event", "attempt_planned"}, {"attempt", 1}, {"placement", {"n0", "n1"}}, {"term", 1}})
          .event);
  last.write(test::entry({{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 20}}).event);
  loop.call([this] {
    for (int n = 0; n < 2; ++n) agent(n).attempt = 1;
  });
  lead(2);
  // The vote of one rank only: the others have the commit outcome from the last leader.
  ASSERT_TRUE(loop.until([this] { return !agent(0).all<Hello>().empty(); }));
  NodeVotes votes{1, 20, {}, {}};
  votes.add(0, true, "{}");
  loop.call([&] { agent(0).say(votes); });
  ASSERT_TRUE(loop.until([this] { return !agent(0).all<CommitOutcome>().empty(); }));
  loop.call([this] {
    EXPECT_TRUE(agent(0).all<CommitOutcome>()[0].durable);
    EXPECT_EQ(agent(0).all<CommitOutcome>()[0].step, 20);
  });
  loop.settle();
  loop.call([this] {
    EXPECT_TRUE(agent(1).all<CommitOutcome>().empty()) << "its ranks have not asked";
    EXPECT_TRUE(agent(2).all<CommitOutcome>().empty());
  });
  std::size_t decided = 0;
  for (const auto& event : read_events(run)) decided += kind_of(event.event) == "checkpoint_durable";
  EXPECT_EQ(decided, 1u);
}

TEST_F(LeaderTest, AnOlderStateInMemoryTakesThePlaceOfADamagedCheckpoint) {
  Journal last(run, 1);
  last.write(test::entry({{"event", "leader_elected"}, {"job", "7.0"}}).event);
  last.write(test::entry({{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 20}}).event);
  const auto step_dir = checkpoint::committed_path(run.checkpoints(), 20);
  files::fs::create_directories(step_dir);
  files::replace_atomically(step_dir / checkpoint::manifest_file_name, "cut off");
  loop.call([this] {
    for (int rank = 0; rank < 4; ++rank) agent(rank / 2).sealed.push_back({rank, 15, 1, 4, false});
  });
  lead(2);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] {
    for (int n = 0; n < 2; ++n) {
      const auto start = agent(n).all<StartRanks>();
      ASSERT_EQ(start.size(), 1u);
      EXPECT_EQ(start[0].from.sealed_step, 15);
    }
  });
}

TEST_F(LeaderTest, AnOrderIsAnsweredWhenARankHasTakenIt) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  const auto answer_to = [this](const char* id, Order::Verb verb, const std::function<void()>& then) {
    loop.call([&] { agent(1).say(Order{id, verb, "", "me@login"}); });
    then();
    std::string says;
    EXPECT_TRUE(loop.until([&] {
      for (const auto& answer : agent(1).all<OrderTaken>())
        if (answer.id == id) says = answer.says;
      return !says.empty();
    }));
    return says;
  };
  EXPECT_THAT(answer_to("1", Order::Verb::save, [] {}), HasSubstr("none has taken the order yet"));
  EXPECT_THAT(answer_to("2", Order::Verb::pause,
                        [this] {
                          EXPECT_TRUE(until_event("paused"));
                          loop.call([this] {
                            EXPECT_EQ(agent(1).all<OrderTaken>().size(), 1u) << "it waits for a rank";
                            agent(0).say(RankHeard{1, 1, RankHeard::What::pause});
                          });
                        }),
              HasSubstr("hold after this step"));
  EXPECT_TRUE(until_event("order_heard"));
}

TEST_F(LeaderTest, OrdersAreCarriedAndAnsweredWhenTheyAreOnRecord) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  loop.call([this] { agent(1).say(Order{"id-1", Order::Verb::pause, "", "me@login"}); });
  ASSERT_TRUE(loop.until([this] { return !agent(1).all<OrderTaken>().empty(); }));
  loop.call([this] {
    const auto answer = agent(1).all<OrderTaken>()[0];
    EXPECT_EQ(answer.id, "id-1");
    EXPECT_TRUE(answer.taken) << answer.says;
    EXPECT_TRUE(agent(0).all<OrderTaken>().empty()) << "it has not asked";
  });
  ASSERT_TRUE(until_event("paused"));
  const auto holds = [this](int n) {
    const auto said = agent(n).all<Pause>();
    return !said.empty() && said.back().on;
  };
  ASSERT_TRUE(loop.until([&] { return holds(0) && holds(1); }));
  // A restarted agent gets it again.
  loop.call([this] {
    agents[0].reset();
    agents[0] = std::make_unique<FakeAgent>(loop.loop, roster.nodes[0], secret);
  });
  EXPECT_TRUE(loop.until([&] { return holds(0); }));
}

TEST_F(LeaderTest, SparesAreAskedHowTheyAre) {
  config.supervise.check_spares_s = 1;
  lead(1);
  ASSERT_TRUE(loop.until([this] { return !agent(2).all<CheckNode>().empty(); }));
  loop.call([this] {
    agent(2).say(NodeHealth{NodeHealth::Fitness::warning, "a slow disk", "0123456789abcdef"});
  });
  EXPECT_TRUE(until_event("spare_health"));
}

TEST_F(LeaderTest, WhileTheRunDirectoryIsGoneDecisionsWaitAndNothingElse) {
  lead(1);
  ASSERT_TRUE(until_event("placement_verified"));
  const auto aside = run.path / "aside";
  files::fs::rename(run.terms(), aside);
  loop.call([this] { agent(0).say(RankExited{1, 1, 137}); });
  std::this_thread::sleep_for(Millis(1500));
  loop.call([this] {
    EXPECT_FALSE(resigned);
    EXPECT_EQ(agent(0).all<Clear>().back().attempt, 1) << "nothing is on record";
  });
  files::fs::rename(aside, run.terms());
  ASSERT_TRUE(until_event("placement_verified", 2));
  std::set<std::string> lost;
  for (const auto& event : read_events(run))
    if (const auto* loss = std::get_if<events::NodeLost>(&event.event)) lost.insert(loss->node);
  EXPECT_TRUE(lost.empty()) << "nobody was to blame for it";
}

}  // namespace
}  // namespace holdfast::launcher

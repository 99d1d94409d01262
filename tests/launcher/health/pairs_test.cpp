#include "launcher/health/pairs.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "launcher/health/nodes.hpp"
#include "launcher/health/pair_rounds.hpp"
#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "tests/launcher/health/fake_node.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Tournament, lets_everyone_meet_everyone_once) {
  for (const int nodes : {0, 1, 2, 3, 4, 7, 8, 16, 31, 127}) {
    std::set<Pair> met;
    const auto rounds = tournament(nodes);
    EXPECT_EQ(rounds.size(), as_size(nodes < 2 ? 0 : nodes % 2 == 0 ? nodes - 1 : nodes)) << nodes;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_LT(pair.second, nodes);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second)
            << "one pair at a time";
        EXPECT_TRUE(met.insert(pair).second) << "twice: " << pair.first << "-" << pair.second;
      }
      EXPECT_EQ(round.size(), as_size(nodes / 2));
    }
    EXPECT_EQ(met.size(), as_size(nodes * (nodes - 1) / 2)) << nodes;
  }
}

/// The rates that `rounds` of the schedule would measure: `node_part` of 1 GB/s for a node, `pair_part` for
/// one pair.
std::vector<PairResult> measured(int nodes, int rounds, const std::map<int, double>& node_part,
                                 const std::map<Pair, double>& pair_part = {}) {
  std::vector<PairResult> results;
  const auto all = tournament(nodes);
  for (int round = 0; round < rounds && round < static_cast<int>(all.size()); ++round)
    for (const auto& pair : all[round]) {
      double part = 0.95 + 0.01 * ((pair.first * 7 + pair.second * 3) % 10);  // ordinary noise
      for (const int node : {pair.first, pair.second})
        if (node_part.contains(node)) part = std::min(part, node_part.at(node));
      if (pair_part.contains(pair)) part = std::min(part, pair_part.at(pair));
      results.push_back({pair, part * 1e9, 50e-6, part > 0 ? "" : "no answer in time"});
    }
  return results;
}

TEST(Judge, names_the_bad_nodes_and_nobody_else) {
  struct Row {
    const char* what;
    int nodes;
    std::map<int, double> bad;
    std::vector<int> suspects;
  };
  for (const Row& row :
       {Row{"all well", 8, {}, {}}, Row{"one slow", 8, {{3, 0.2}}, {3}}, Row{"one cut off", 8, {{0, 0}}, {0}},
        Row{"two slow", 8, {{1, 0.3}, {6, 0.1}}, {1, 6}},
        Row{"three of nine", 9, {{0, 0.2}, {4, 0.2}, {8, 0.2}}, {0, 4, 8}},
        Row{"of three", 3, {{2, 0.1}}, {2}}, Row{"of four", 4, {{0, 0.1}}, {0}},
        Row{"a little slower is not slow", 8, {{3, 0.7}}, {}}}) {
    const auto findings = judge_pairs(row.nodes, measured(row.nodes, 1000, row.bad));
    EXPECT_EQ(findings.suspects, row.suspects) << row.what;
    EXPECT_THAT(findings.unexplained, IsEmpty()) << row.what;
  }
}

TEST(Judge, accuses_no_node_for_one_bad_way) {
  const auto findings = judge_pairs(8, measured(8, 1000, {}, {{{2, 5}, 0.1}}));
  EXPECT_THAT(findings.suspects, IsEmpty());
  EXPECT_THAT(findings.unexplained, ElementsAre(Pair{2, 5}));
  const auto both = judge_pairs(8, measured(8, 1000, {{7, 0.1}}, {{{2, 5}, 0.1}}));
  EXPECT_THAT(both.suspects, ElementsAre(7));
  EXPECT_THAT(both.unexplained, ElementsAre(Pair{2, 5}));
}

TEST(Judge, hears_latency_too_and_cannot_compare_a_single_pair) {
  auto results = measured(4, 1000, {});
  for (auto& result : results)
    if (result.pair.first == 1 || result.pair.second == 1) result.latency_s = 5e-3;
  EXPECT_THAT(judge_pairs(4, results).suspects, ElementsAre(1));
  for (auto& result : results) result.latency_s = result.latency_s > 1e-3 ? 600e-6 : 50e-6;
  EXPECT_THAT(judge_pairs(4, results).slow, IsEmpty()) << "below a millisecond it is noise";
  EXPECT_THAT(judge_pairs(2, measured(2, 1, {{0, 0.01}})).slow, IsEmpty()) << "nothing to compare with";
  EXPECT_THAT(judge_pairs(2, measured(2, 1, {{0, 0}})).slow, ElementsAre(Pair{0, 1}));
}

TEST(Regroup, tells_which_of_a_slow_pair_it_was) {
  const std::map<int, double> bad = {{20, 0.1}};
  auto results = measured(40, 1, bad);
  EXPECT_THAT(judge_pairs(40, results).suspects, IsEmpty()) << "one pair cannot tell which end";
  const auto round = regroup(40, results);
  ASSERT_EQ(round.size(), 2u) << "each end of the slow pair meets another";
  for (const auto& pair : round) {
    const bool with_bad = pair.first == 20 || pair.second == 20;
    results.push_back({pair, with_bad ? 0.1e9 : 1e9, 50e-6, ""});
  }
  EXPECT_THAT(judge_pairs(40, results).suspects, ElementsAre(20));
  EXPECT_THAT(regroup(40, measured(40, 1, {})), IsEmpty());
  EXPECT_THAT(regroup(2, measured(2, 1, {{0, 0}})), IsEmpty()) << "nobody to tell it with";
}

class Rounds : public ::testing::Test {
 protected:
  Rounds() : place(here.folder()) {
    files::replace_atomically(place.path() / "secret", control::to_hex(control::random_key()) + "\n", 0600);
  }
  ~Rounds() override {
    for (const pid_t pid : peers) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
  /// A peer in a process of its own, as on a node; it starts when the leader is there.
  void start(const std::string& name, const std::string& address = "127.0.0.1") {
    peers.push_back(::fork());
    if (peers.back() != 0) return;
    while (!std::filesystem::exists(place.path() / "leader.json")) ::usleep(2000);
    ::_exit(follow_rounds(place.path(), name, address, Millis(30000)) ? 0 : 1);
  }
  test::FakeNode here;
  SharedTempFolder place;
  std::vector<pid_t> peers;
};

TEST_F(Rounds, measure_every_pair_of_nodes) {
  for (const char* name : {"a", "b", "c", "d"}) start(name);
  const auto result = lead_rounds(place.path(), "127.0.0.1", {"a", "b", "c", "d"}, {});
  EXPECT_EQ(result.rounds, 3);
  ASSERT_EQ(result.pairs.size(), 6u);
  for (const auto& pair : result.pairs) {
    EXPECT_GT(pair.bytes_s, 1e6) << pair.why;
    EXPECT_GT(pair.latency_s, 0);
  }
  for (auto& pid : peers) {
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "a peer leaves when the leader says so";
  }
  peers.clear();
  const auto j = network_json(result);
  EXPECT_EQ(j["pairs"].size(), 6u);
  EXPECT_EQ(j["rounds"], 3);
  EXPECT_THAT(network_text(result), HasSubstr("a-b"));
}

TEST_F(Rounds, name_a_node_that_nobody_reaches_and_one_that_never_calls) {
  start("a"), start("b"), start("c");
  start("lost", "127.0.0.1:nowhere");  // calls, but its partners cannot find it
  RoundsPlan plan;
  plan.join = Millis(2500);
  plan.link = Millis(1000);
  const auto result = lead_rounds(place.path(), "127.0.0.1", {"lost", "a", "b", "c", "absent"}, plan);
  EXPECT_THAT(result.absent, ElementsAre("absent"));
  EXPECT_THAT(result.nodes, ElementsAre("lost", "a", "b", "c"));
  const auto findings = network_findings(result);
  EXPECT_EQ(test::found(findings, "network.join").says, "absent did not connect");
  EXPECT_EQ(test::found(findings, "network.node").says, "lost is slow or cut off with most of its partners");
  EXPECT_EQ(worst(findings), Fitness::critical);
}

TEST(NetworkReport, two_nodes_that_cannot_speak_are_no_mere_warning) {
  NetworkResult result;
  result.nodes = {"a", "b"};
  result.rounds = 1;
  result.pairs = {{{0, 1}, 0, 0, "no answer"}};
  result.findings = judge_pairs(2, result.pairs);
  EXPECT_EQ(test::found(network_findings(result), "network.cut").fitness, Fitness::critical);
}

TEST(Link, refuses_who_does_not_know_the_secret) {
  const LinkPort port;
  const auto right = control::random_key(), wrong = control::random_key();
  std::string served;
  std::thread server([&] { served = port.serve(right, Millis(5000)); });
  EXPECT_NE(measure_link("127.0.0.1", port.port(), wrong, {1 << 20, 0.01, Millis(2000)}).why, "");
  const auto result = measure_link("127.0.0.1", port.port(), right, {1 << 20, 0.01, Millis(4000)});
  server.join();
  EXPECT_EQ(result.why, "");
  EXPECT_GT(result.bytes_s, 0);
  EXPECT_EQ(served, "") << "the stranger was turned away, the partner served";
  EXPECT_NE(LinkPort().serve(right, Millis(20)), "");
}

}  // namespace
}  // namespace holdfast::launcher

// Thousands of runs with random losses, ends, cuts, returns and changes of leader, and their invariants.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/env.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;

class Chaos {
 public:
  explicit Chaos(std::uint64_t seed) : random_(seed), cluster_(shape()) {
    cluster_.on_launch = [this](const Launch& what) { check_launch(what); };
    cluster_.after_tick = [this] { check(); };
  }

  /// Faults for some time, then everything is repaired: the run must reach a defined end.
  void run() {
    const double trouble_s = 5 + below(25);
    for (const double end = cluster_.now + trouble_s; cluster_.now < end && !over();) {
      if (below(8) == 0) fault();
      cluster_.run(0.05 * (1 + below(12)));
      elect();
    }
    for (int n = 0; n < nodes(); ++n) {
      auto& agent = cluster_.agent(n);
      cluster_.revive(n);
      if (!agent.clears) cluster_.restart_agent(n);  // whatever held it has gone: a new line asks again
      agent.clears = agent.starts = true;
      for (auto& [number, rank] : agent.ranks) rank.hangs = false;
    }
    cluster_.setup.steps = 0;  // each attempt that trains from here on is at its end
    for (const double end = cluster_.now + 400; cluster_.now < end && !over();) {
      if (cluster_.leader && cluster_.leader->state().paused)
        cluster_.tell(cluster_.leader_node, [](Supervisor& s) {
          s.order({"2", control::Order::Verb::resume, "", ""});
        });
      cluster_.run(0.5), elect();
    }
    ASSERT_TRUE(over()) << "stage " << name_of(cluster_.stage()) << "\n" << tail();
    const json result = cluster_.result();
    ASSERT_EQ(result, result_of(cluster_.leader->state())) << "the log and the leader disagree";
    ASSERT_EQ(cluster_.replayed().lost, cluster_.leader->state().lost);
    ASSERT_EQ(cluster_.replayed().suspects, cluster_.leader->state().suspects);
    ASSERT_EQ(cluster_.replayed().evicted, cluster_.leader->state().evicted);
    ASSERT_EQ(cluster_.replayed().failures, cluster_.leader->state().failures);
    const RunState replayed = cluster_.replayed();
    const RunState& mind = cluster_.leader->state();
    ASSERT_EQ(replayed.setbacks, mind.setbacks);
    ASSERT_NEAR(replayed.setback_s, mind.setback_s, 1e-3);
    ASSERT_EQ(replayed.restarts, mind.restarts);
    ASSERT_EQ(replayed.no_progress, mind.no_progress);
    ASSERT_EQ(replayed.same_step_count, mind.same_step_count);
    ASSERT_EQ(replayed.same_error, mind.same_error);
    ASSERT_TRUE(cluster_.replayed().pace == cluster_.leader->state().pace);
    ASSERT_EQ(cluster_.replayed().durable, cluster_.leader->state().durable);
    ASSERT_EQ(result["exit_code"], *cluster_.exit_code);
    ASSERT_TRUE((std::set{0, 1, 2, 5, 75, 93}).contains(*cluster_.exit_code)) << *cluster_.exit_code;
    for (const auto& a : result["attempts"]) {
      ASSERT_FALSE(std::string(a["cause"]).empty());
      ASSERT_GE(a["lost_steps"], 0);
      ASSERT_GE(a["detected_s"], 0);
    }
    check_lost_steps(result);
    check_time(result);
  }

  int exit_code() const { return *cluster_.exit_code; }
  std::size_t attempts() const { return cluster_.all("attempt_planned").size(); }
  std::size_t takeovers() const { return as_size(cluster_.term - 1); }
  std::size_t adopted() const { return cluster_.all("attempt_adopted").size(); }
  std::size_t count(const char* kind) const { return cluster_.all(kind).size(); }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  int nodes() const { return static_cast<int>(cluster_.agents.size()); }
  bool over() const { return cluster_.exit_code.has_value(); }

  Shape shape() {
    Shape s;
    s.slots = 1 + below(4);
    s.spares = 1 + below(4);
    s.ranks_per_node = 1 + below(2);
    s.checkpoint_every = 3 + below(8);
    s.limits.heartbeat_ms = 100;
    s.limits.node_silence_ms = 600;
    s.limits.start_s = 3;
    s.limits.step_s = 4;
    s.limits.clear_s = 5;
    s.limits.infrastructure_s = below(2) ? 600 : 20;
    for (int n = 0; n < s.slots + s.spares; ++n) s.units.push_back(below(2) ? "A" : "B");
    s.drain_s = 5;
    s.local = below(2);
    s.limits.max_node_failures = 1 + below(3);
    s.limits.on_straggler = below(2) ? config::OnStraggler::substitute : config::OnStraggler::report;
    using enum config::WhenShort;
    const config::WhenShort answers[] = {automatic, shrink, requeue, stop};
    s.limits.when_short = answers[below(4)];
    s.limits.min_nodes = below(3);
    s.limits.max_without_checkpoint = 4 + below(8);
    if (s.slots > 1 && below(2))
      s.facts.shrinking = {.nodes = s.slots,
                           .together = s.slots % 2 == 0 && below(2) && s.slots > 2 ? 2 : 1,
                           .ranks_per_node = s.ranks_per_node,
                           .group = 1,
                           .parts = s.slots * s.ranks_per_node,
                           .steps = 2000};
    return s;
  }

  void fault() {
    const int n = below(nodes());
    auto& agent = cluster_.agent(n);
    switch (below(15)) {
      case 12:
        return order();
      case 13:
        return cluster_.tell(n, [n, what = control::NodeHealth{
                                        static_cast<control::NodeHealth::Fitness>(below(4)), "why",
                                        below(6) ? "ab" : "cd"}](Supervisor& s) { s.node_health(n, what); });
      case 14:
        return say(n);
      case 0:
        return cluster_.kill(n);
      case 1:
        return cluster_.cut(n);
      case 2:
      case 3:
      case 4:
        return cluster_.revive(below(nodes()));
      case 5:
        return cluster_.restart_agent(n);
      case 6:
      case 7: {
        if (agent.ranks.empty()) return;
        const int statuses[] = {0, 1, 1, 1, 137, 139, -1, 75, 2};
        return cluster_.end_rank(
            std::next(agent.ranks.begin(), below(static_cast<int>(agent.ranks.size())))->first,
            statuses[below(9)]);
      }
      case 8:
        for (auto& [number, rank] : agent.ranks) rank.hangs = below(2) == 0;
        return;
      case 9:
        if (std::exchange(agent.clears, below(2) == 0) || !agent.clears) return;
        return cluster_.restart_agent(n);  // what it could not end has ended
      case 10:
        agent.starts = below(2) == 0;
        return;
      case 11:
        if (!cluster_.leader) return;
        if (below(3) == 0) return cluster_.leader_stopped_for(0.2 * below(40));
        cluster_.actions_left = below(6);  // somewhere in the midst of what it does next
    }
  }

  void order() {
    using Given = control::Order::Verb;
    const Given verbs[] = {Given::save,  Given::pause,  Given::resume, Given::evict,
                           Given::evict, Given::spares, Given::stop};
    const int which = below(below(4) ? 6 : 7);  // a stop ends the schedule
    cluster_.tell(below(nodes()),
                  [what = control::Order{"1", verbs[which], "n" + std::to_string(below(nodes() + 1)), "by"}](
                      Supervisor& s) {
                    const auto answer = s.order(what);
                    ASSERT_FALSE(answer.says.empty());
                  });
  }

  /// A sign, a doubt, or a drain.
  void say(int n) {
    if (below(4) == 0)
      return cluster_.tell(n, [stop = below(6) == 0](Supervisor& s) { s.drain({stop, "random"}); });
    const char* kinds[] = {"gpu_lost", "link_down", "oom_kill", "no_space", "thermal", "no such kind"};
    cluster_.tell(n, [n, what = control::NodeSigns{{{kinds[below(6)], -1, 0, below(90000), "text"}}}](
                         Supervisor& s) { s.node_signs(n, what); });
    if (below(6) != 0 || !cluster_.leader) return;
    control::RankDoubt doubt{
        0, cluster_.leader->attempt(), cluster_.reached, {}, below(2) ? "micro_batch" : "replicas", ""};
    for (int i = below(3); i >= 0; --i) doubt.accused.push_back(below(8));
    cluster_.tell(n, [n, doubt](Supervisor& s) { s.rank_doubt(n, doubt); });
  }

  /// As in the agents: half of those that are not recorded as lost must answer.
  void elect() {
    if (cluster_.leader && cluster_.agent(cluster_.leader_node).reachable()) return;
    if (cluster_.leader) cluster_.lose_leader();
    cluster_.run(0.8);
    const auto lost = cluster_.replayed().lost;
    int voters = 0;
    int answers = 0;
    std::vector<int> there;
    for (int n = 0; n < nodes(); ++n) {
      const bool counts = !lost.contains(cluster_.roster.nodes[n].name);
      voters += counts;
      if (!cluster_.agent(n).reachable()) continue;
      answers += counts;
      there.push_back(n);
    }
    if (there.empty() || 2 * answers < voters) return;
    cluster_.new_leader(there[below(static_cast<int>(there.size()))]);
  }

  void check_launch(const Launch& what) {
    const auto& state = cluster_.leader->state();
    ASSERT_EQ(what.attempt, cluster_.leader->attempt());
    ASSERT_GT(what.attempt, launched_) << "one launch for each attempt";
    launched_ = what.attempt;
    ASSERT_EQ(what.placement, cluster_.leader->placement());
    ASSERT_EQ(what.from.trusted_step, state.trusted_step);
    for (const int n : what.placement) {
      ASSERT_FALSE(state.lost.contains(cluster_.roster.nodes[n].name));
      // Fenced: nothing older lives where the new ranks go (an agent that died after it answered has nothing
      // at all).
      ASSERT_TRUE(cluster_.agent(n).attempt == what.attempt || cluster_.agent(n).ranks.empty());
    }
  }

  void check() {
    if (!cluster_.leader) return;
    const auto& placement = cluster_.leader->placement();
    const auto slots = as_size(cluster_.setup.slots);
    ASSERT_LE(placement.size(), slots);
    ASSERT_GE(placement.size(), 1u);
    const auto& shrinking = cluster_.setup.facts.shrinking;
    if (placement.size() < slots) {
      ASSERT_GT(shrinking.together, 0);
      ASSERT_EQ(placement.size() % as_size(shrinking.together), 0u) << "whole replicas";
    }
    ASSERT_EQ(std::set(placement.begin(), placement.end()).size(), placement.size())
        << "one node in two slots";
    const Stage stage = cluster_.stage();
    if (stage == Stage::clearing || stage == Stage::starting || stage == Stage::running)
      for (const int n : placement) {
        const auto& name = cluster_.roster.nodes[n].name;
        ASSERT_FALSE(cluster_.leader->state().lost.contains(name)) << name << " is lost and placed\n"
                                                                   << tail();
      }
    for (; seen_ < cluster_.events.size(); ++seen_) {
      const json& event = cluster_.events[seen_];
      if (event["event"] == "node_evicted") evicted_.insert(std::string(event["node"]));
      if (event["event"] == "node_returned") {
        ASSERT_FALSE(evicted_.contains(event["node"]));
      }
      if (event["event"] == "restored" && trusted_ >= 0) {
        ASSERT_LE(event["step"], trusted_) << "state that may be wrong\n" << tail();
      }
      if (event["event"] == "silent_corruption") trusted_ = event["trusted_step"];
      if (event["event"] == "checkpoint_durable") trusted_ = cluster_.leader->state().trusted_step;
      if (event["event"] == "attempt_planned") {
        ASSERT_EQ(event["attempt"], planned_ + 1) << "attempts count one by one";
        planned_ = event["attempt"];
      }
      ASSERT_GE(event["unix"], last_time_);
      last_time_ = event["unix"];
    }
  }

  void check_time(const json& result) {
    double sum = 0;
    for (const auto& [use, seconds] : result["time_s"].items()) {
      sum += seconds.get<double>();
      ASSERT_GE(seconds, -1e-5) << use << result["time_s"];
    }
    const double wall =
        cluster_.events.back()["unix"].get<double>() - cluster_.events.front()["unix"].get<double>();
    ASSERT_NEAR(sum, wall, 1e-3) << result["time_s"];
    ASSERT_NEAR(result["wall_s"], wall, 1e-3);
  }

  /// Steps that were executed more than once, counted from the log independently.
  void check_lost_steps(const json& result) {
    std::int64_t said = 0, redone = 0, reached = 0;
    for (const auto& a : result["attempts"]) {
      said += a["lost_steps"].get<std::int64_t>();
      if (a["restored_from"].is_null()) continue;
      redone += std::max<std::int64_t>(0, reached - a["restored_from"]["step"].get<std::int64_t>());
      reached = a["last_step"];
    }
    ASSERT_EQ(said, redone) << result.dump(1);
  }

  std::string tail() const {
    std::string text;
    for (std::size_t i = cluster_.events.size() > 25 ? cluster_.events.size() - 25 : 0;
         i < cluster_.events.size(); ++i)
      text += cluster_.events[i].dump() + "\n";
    return text;
  }

  std::mt19937_64 random_;
  FakeCluster cluster_;
  int launched_ = 0, planned_ = 0;
  std::int64_t trusted_ = -1;
  std::set<std::string> evicted_;
  std::size_t seen_ = 0;
  double last_time_ = 0;
};

constexpr const char* kinds_of_interest[] = {
    "node_returned", "node_evicted", "eviction_ordered", "run_shrunk", "silent_corruption", "spare_health",
    "drain",         "paused"};

TEST(SupervisorInvariants, RandomSchedules) {
  std::map<int, int> ends;
  std::size_t attempts = 0, takeovers = 0, adopted = 0;
  std::map<std::string, std::size_t> events;
  const long schedules =
      env::get_integer("HOLDFAST_RANDOM_SCHEDULES").value_or(3000);  // more of them for a long night
  for (long seed = 1; seed <= schedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos chaos(static_cast<std::uint64_t>(seed));
    ASSERT_NO_FATAL_FAILURE(chaos.run());
    if (HasFailure()) return;
    ++ends[chaos.exit_code()];
    attempts += chaos.attempts();
    takeovers += chaos.takeovers();
    adopted += chaos.adopted();
    for (const char* kind : kinds_of_interest) events[kind] += chaos.count(kind);
  }
  if (schedules < 3000) return;
  // The schedules must cover these events.
  RecordProperty("attempts", static_cast<int>(attempts));
  RecordProperty("takeovers", static_cast<int>(takeovers));
  EXPECT_GT(attempts, 5000u);
  EXPECT_GT(takeovers, 900u);
  EXPECT_GT(adopted, 300u);
  for (const char* kind : kinds_of_interest) {
    RecordProperty(kind, static_cast<int>(events[kind]));
    EXPECT_GT(events[kind], 30u) << kind;
  }
  for (const int code : {0, 2, 5, 75, 93}) EXPECT_GT(ends[code], 10) << code;
}

}  // namespace
}  // namespace holdfast::launcher

#include "launcher/job/agent_steps.hpp"

#include <gmock/gmock.h>

#include <mutex>

#include "src/base/run_dir.hpp"
#include "tests/config/scratch.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Nodes = std::vector<std::string>;

/// Runs shell commands as steps: one as every agent, one as every trial.
class ShellCluster : public slurm::FakeCluster {
 public:
  ShellCluster(std::string agent, std::string trial)
      : FakeCluster("n[1-4]"), agent_(std::move(agent)), trial_(std::move(trial)) {}
  Command step_command(const slurm::StepRequest& request) const override {
    const bool is_trial = request.name == "trial";
    if (!is_trial) started.push_back(request.nodes);
    Command command;
    command.argv = {"sh", "-c", is_trial ? trial_ : agent_};
    command.new_session = true;
    return command;
  }
  mutable std::vector<Nodes> started;
  /// Called by a thread of its own.
  void signal_steps(slurm::JobId id, std::string_view name, int signal, Millis limit) override {
    const std::scoped_lock lock(mutex_);
    FakeCluster::signal_steps(id, name, signal, limit);
  }
  std::vector<slurm::JobId> signalled_jobs() const {
    const std::scoped_lock lock(mutex_);
    return signalled;
  }

 private:
  std::string agent_, trial_;
  mutable std::mutex mutex_;
};

class AgentStepsTest : public ::testing::Test {
 protected:
  AgentSteps& steps(ShellCluster& cluster, const Nodes& nodes) {
    AgentSteps::Setup setup;
    setup.run = RunDir{scratch.path()};
    setup.job = 7;
    setup.trial_node = "n1";
    setup.nodes = nodes;
    setup.into_image = [](slurm::StepRequest&) {};
    setup.refusal_s = 0.2;
    made.emplace(loop, cluster, std::move(setup),
                 AgentSteps::Hooks{[](const std::function<void()>& then) { then(); },
                                   [this](const std::string& why) {
                                     refused = why;
                                     loop.stop();
                                   },
                                   [this] {
                                     none_left = true;
                                     loop.stop();
                                   }});
    made->start_all();
    return *made;
  }
  /// At most 20 s.
  void run_until(const std::function<bool()>& enough) {
    const auto look = loop.every(Millis(20), [&] {
      if (enough()) loop.stop();
    });
    const auto limit = loop.after(Millis(20000), [this] { loop.stop(); });
    loop.run();
  }

  holdfast::test::Scratch scratch;
  control::RealLoop loop;
  std::optional<AgentSteps> made;
  std::string refused;
  bool none_left = false;
};

TEST_F(AgentStepsTest, StepsThatAreRefusedForLongAreToldInSlurmsWords) {
  ShellCluster cluster("exit 1", "echo 'srun: error: Step limit reached for this job' >&2; exit 1");
  steps(cluster, {"n1"});
  run_until([this] { return !refused.empty(); });
  EXPECT_THAT(refused, HasSubstr("Step limit reached for this job"));
}

TEST_F(AgentStepsTest, AgentsThatFailInStepsThatSlurmStartsAreNotRefused) {
  ShellCluster cluster("exit 1", "true");
  steps(cluster, {"n1"});
  run_until([&] { return cluster.started.size() >= 3; });
  EXPECT_EQ(refused, "");
  EXPECT_THAT(cluster.started, ElementsAre(Nodes{"n1"}, Nodes{"n1"}, Nodes{"n1"}));
}

TEST_F(AgentStepsTest, NothingIsTriedOnceAnAgentHasAnswered) {
  ShellCluster cluster("exit 1", "exit 1");
  steps(cluster, {"n1"}).probed("n1", StepWatch::Probe::answers);
  run_until([&] { return cluster.started.size() >= 3; });
  EXPECT_EQ(refused, "");
}

TEST_F(AgentStepsTest, NodesOfAStepThatEndedAreStartedInHalves) {
  ShellCluster cluster("sleep 0.1; exit 1", "true");
  steps(cluster, {"n1", "n2", "n3", "n4"});
  run_until([&] { return cluster.started.size() >= 3; });
  EXPECT_THAT(cluster.started,
              ElementsAre(Nodes{"n1", "n2", "n3", "n4"}, Nodes{"n1", "n2"}, Nodes{"n3", "n4"}));
}

TEST_F(AgentStepsTest, StopsWhenTheLastStepHasEnded) {
  ShellCluster cluster("exec sleep 60", "true");
  auto& running = steps(cluster, {"n1", "n2"});
  loop.post([&] {
    running.stop();
    EXPECT_FALSE(none_left);
    running.terminate();
  });
  run_until([] { return false; });
  EXPECT_TRUE(none_left);
  EXPECT_EQ(cluster.started.size(), 1U);
}

TEST_F(AgentStepsTest, TheSrunOfAStepIsKilledWhenAllItsAgentsHaveAnswered) {
  ShellCluster cluster("exec sleep 60", "true");
  auto& running = steps(cluster, {"n1", "n2", "n3"});
  for (const auto* node : {"n1", "n2", "n3"}) running.probed(node, StepWatch::Probe::answers);
  const auto later = loop.after(Millis(1500), [&] {
    EXPECT_EQ(cluster.started.size(), 1U) << "its end does not matter";
    // A node comes back without an agent; nothing is killed with a step of its own.
    running.probed("n3", StepWatch::Probe::silent);
    running.probed("n3", StepWatch::Probe::refuses);
    EXPECT_TRUE(running.misses_agents());
    running.renew([](const std::string&) { return true; });
    running.terminate();
  });
  run_until([&] { return !cluster.signalled_jobs().empty(); });
  EXPECT_THAT(cluster.started, ElementsAre(Nodes{"n1", "n2", "n3"}, Nodes{"n3"}));
  EXPECT_EQ(cluster.signalled_jobs(), std::vector<slurm::JobId>{7}) << "no srun passes the signal on";
}

TEST_F(AgentStepsTest, AgentsWithoutAnSrunAreAwaitedByProbes) {
  ShellCluster cluster("exec sleep 60", "true");
  auto& running = steps(cluster, {"n1", "n2", "n3"});
  for (const auto* node : {"n1", "n2", "n3"}) running.probed(node, StepWatch::Probe::answers);
  running.probed("n3", StepWatch::Probe::silent);
  running.stop();
  const auto pause = loop.after(Millis(500), [this] { loop.stop(); });
  loop.run();
  EXPECT_FALSE(none_left);
  running.probed("n1", StepWatch::Probe::refuses);
  EXPECT_FALSE(none_left);
  running.probed("n2", StepWatch::Probe::refuses);
  EXPECT_TRUE(none_left);
}

TEST_F(AgentStepsTest, NothingIsStartedInAJobThatEnds) {
  ShellCluster cluster("exit 1", "true");
  steps(cluster, {"n1"}).start_no_more();
  const auto pause = loop.after(Millis(1500), [this] { loop.stop(); });
  loop.run();
  EXPECT_EQ(cluster.started.size(), 1U);
}

TEST_F(AgentStepsTest, WhatWasToBeStartedLaterIsNotStartedInAJobThatEnds) {
  ShellCluster cluster("exit 1", "true");
  auto& running = steps(cluster, {"n1", "n2"});
  const auto halves = loop.every(Millis(20), [&] {
    if (cluster.started.size() == 3) running.start_no_more();
  });
  const auto pause = loop.after(Millis(2500), [this] { loop.stop(); });
  loop.run();
  EXPECT_THAT(cluster.started, ElementsAre(Nodes{"n1", "n2"}, Nodes{"n1"}, Nodes{"n2"}));
}

}  // namespace
}  // namespace holdfast::launcher

// holdfast-train under an agent: a small agent of our own hears what the rank says and commits as the leader
// would.
#include <gmock/gmock.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "checkpoint/index/commit.hpp"
#include "src/base/rank_env.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/load.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

/// Answers one node's ranks. What it heard may be read after stop().
class Agent {
 public:
  /// `refused`: steps whose checkpoints are dropped.
  Agent(const RunDir& run, int world, int attempt, std::set<std::int64_t> refused = {})
      : run_(run), world_(world), attempt_(attempt), refused_steps_(std::move(refused)) {
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Agent() { stop(); }
  void stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::filesystem::path socket() const { return run_.path / "agent.sock"; }

  std::set<std::int64_t> steps, voted;
  std::map<int, control::RankProgress> progress;
  std::map<int, control::Restored> restored;
  std::map<int, control::RankFailed> failed;
  std::optional<control::FinalState> final_state;
  int finished = 0;

 private:
  void accept(control::ChannelPtr channel) {
    channels_.push_back(channel);
    control::Channel* raw = channel.get();
    channel->handle(
        {[] {}, [this, raw](std::string_view line) { hear(*raw, line); }, [](const std::string&) {}});
  }
  void hear(control::Channel& from, std::string_view line) {
    std::string why;
    const auto message = control::decode(line, why);
    ASSERT_TRUE(message) << why;
    if (const auto* m = std::get_if<control::RankProgress>(&*message)) {
      steps.insert(m->step);
      progress[m->rank] = *m;
    }
    if (const auto* m = std::get_if<control::RankRestored>(&*message)) restored[m->rank] = m->from;
    if (const auto* m = std::get_if<control::RankVote>(&*message)) take(*m);
    if (const auto* m = std::get_if<control::RankFailed>(&*message)) {
      failed[m->rank] = *m;
      from.send(control::encode(control::Taken{}));
    }
    if (const auto* m = std::get_if<control::RankFinished>(&*message)) {
      ++finished;
      if (m->state) final_state = m->state;
      from.send(control::encode(control::Taken{}));
    }
  }
  void take(const control::RankVote& vote) {
    voted.insert(vote.step);
    auto& commit = commits_
                       .try_emplace(vote.step, run_.checkpoints(), vote.step,
                                    checkpoint::Generation{1, attempt_}, world_)
                       .first->second;
    commit.add(vote.rank, vote.ok, vote.payload);
    if (!commit.complete()) return;
    const bool durable = !commit.failed() && !refused_steps_.contains(vote.step);
    if (durable)
      commit.commit();
    else
      commit.drop();
    for (const auto& channel : channels_)
      channel->send(
          control::encode(control::CommitOutcome{attempt_, vote.step, durable, "refused by the test"}));
  }

  RunDir run_;
  int world_, attempt_;
  std::set<std::int64_t> refused_steps_;
  control::RealLoop loop_;
  std::vector<control::ChannelPtr> channels_;
  std::map<std::int64_t, checkpoint::Commit> commits_;
  control::Listener listener_{loop_, socket(), control::read_secret(run_.secret()),
                              [this](control::ChannelPtr c) { accept(std::move(c)); }};
  std::thread thread_;
};

class Supervised : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    ASSERT_EQ(train(1, "bare").status, 0);
    run_ = {folder_ / "supervised"};
    std::filesystem::create_directories(run_.checkpoints());
    files::replace_atomically(run_.secret(), control::to_hex(control::random_key()), files::for_owner);
    files::replace_atomically(
        run_.config(),
        config::to_toml(
            config::load(path("job.toml"), {"shard.strategy=full_shard", "checkpoint.local=none"}).config));
    files::replace_atomically(run_.model(), config::to_toml(config::load_model(path("model.toml"))));
  }
  /// Both ranks of one node, as an agent starts them.
  Finished start(const Agent& agent, int world, int attempt) {
    Command c;
    c.argv = {HOLDFAST_MPIEXEC, "--oversubscribe", "--bind-to", "none"};
    for (int rank = 0; rank < world; ++rank) {
      RankEnv place;
      place.rank = place.local_rank = rank;
      place.world = place.ranks_per_node = world;
      place.term = 1;
      place.attempt = attempt;
      place.run_dir = run_.path;
      place.agent_socket = agent.socket();
      place.key_file = run_.path / ("key-" + std::to_string(rank));
      files::replace_atomically(
          place.key_file,
          control::to_hex(control::rank_key(control::read_secret(run_.secret()), {rank, attempt})),
          files::for_owner);
      if (rank > 0) c.argv.push_back(":");
      c.argv.insert(c.argv.end(), {"-n", "1"});
      for (const std::string& variable : to_variables(place)) c.argv.insert(c.argv.end(), {"-x", variable});
      c.argv.push_back(HOLDFAST_TRAIN);
    }
    return run(c, std::chrono::seconds(60));
  }
  RunDir run_;
};

TEST_F(Supervised, ReportsRestoresVotesAndFinishesAsTheBareRunDoes) {
  Agent first(run_, 2, 1, {10});
  const Finished cut = start(first, 2, 1);
  first.stop();
  EXPECT_EQ(cut.status, 1) << cut.err;
  EXPECT_EQ(first.restored[0].level, "fresh");
  EXPECT_EQ(first.voted, (std::set<std::int64_t>{5, 10}));
  EXPECT_EQ(first.finished, 0) << "a final state that is not durable is no end";
  ASSERT_FALSE(first.failed.empty());
  EXPECT_THAT(first.failed.begin()->second.why, HasSubstr("could not be saved"));

  Agent second(run_, 2, 2);
  const Finished done = start(second, 2, 2);
  second.stop();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(second.restored[0].step, 5);
  EXPECT_EQ(second.restored[1].step, 5);
  EXPECT_EQ(second.restored[0].level, "shared");
  EXPECT_EQ(second.restored[0].digest, second.restored[1].digest);
  EXPECT_EQ(second.voted, (std::set<std::int64_t>{10}));
  EXPECT_EQ(second.finished, 2);
  ASSERT_TRUE(second.final_state);
  EXPECT_EQ(second.final_state->state_digest, digest("bare"));
  EXPECT_EQ(second.final_state->step, 10);
  EXPECT_EQ(second.final_state->loss, result("bare")["final_loss"]);
  EXPECT_FALSE(second.steps.empty());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(second.progress[rank].step, 10);
    EXPECT_GT(second.progress[rank].compute_us, 0);
    EXPECT_GT(second.progress[rank].moves, 5 * 4) << "five steps, and more than a phase in each";
  }
  EXPECT_FALSE(std::filesystem::exists(run_.result())) << "the leader writes it";

  Agent third(run_, 2, 3);  // the end was reached, but the leader died before it said so
  EXPECT_EQ(start(third, 2, 3).status, 0);
  third.stop();
  EXPECT_EQ(third.restored[0].step, 10);
  ASSERT_TRUE(third.final_state);
  EXPECT_EQ(third.final_state->state_digest, digest("bare"));
}

TEST_F(Supervised, WhatGoesWrongReachesTheAgentBeforeTheRankEnds) {
  std::filesystem::remove(path("tokens.bin"));
  Agent agent(run_, 1, 1);
  EXPECT_EQ(start(agent, 1, 1).status, 2);
  agent.stop();
  ASSERT_TRUE(agent.failed.contains(0));
  EXPECT_EQ(agent.failed[0].exit_code, 2);
  EXPECT_THAT(agent.failed[0].why, HasSubstr("tokens.bin"));
}

}  // namespace
}  // namespace holdfast::train

// Training in the snapshot buffers of the local level: the same bits as without it, and whoever is killed
// leaves a snapshot that all ranks have.
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <thread>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state_folder.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/load.hpp"
#include "src/control/private_place.hpp"
#include "src/shard/mesh.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/local/local_identity.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

class LocalTraining : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    std::filesystem::create_directory(folder_ / "local");
  }
  Sets with_local(Sets sets) const {
    sets.push_back("checkpoint.local=" + path("local"));
    return sets;
  }
  /// Where the ranks of this run have their snapshots.
  std::filesystem::path local_level(const std::string& dir) const {
    const RunDir run{folder_ / dir};
    const auto place = control::local_level_place(run, path("local"));
    return control::find_private(place, control::read_secret(run.secret())).value_or("");
  }
  static std::vector<std::int64_t> numbers(const std::string& text, const std::string& pattern) {
    std::smatch match;
    std::vector<std::int64_t> out;
    if (std::regex_search(text, match, std::regex(pattern)))
      for (std::size_t i = 1; i < match.size(); ++i) out.push_back(std::stoll(match[i]));
    return out;
  }
  std::int64_t lines(const std::string& dir) const {
    std::ifstream file(folder_ / dir / "metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  /// SIGKILL to all ranks, some time after the run has come to this step.
  void kill_when(const std::string& dir, std::int64_t step, std::chrono::microseconds later = {}) const {
    // The ranks themselves: mpirun would end them one after the other.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    while (std::chrono::steady_clock::now() < until && lines(dir) < step)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(later);
    for (const int pid : ranks_of(dir)) ::kill(pid, SIGKILL);
  }
  /// Processes of the ranks of this run; mpirun is none of them.
  std::vector<int> ranks_of(const std::string& dir) const {
    std::vector<int> out;
    for (const std::string& name : files::list("/proc")) {
      std::ifstream file("/proc/" + name + "/cmdline");
      std::string program, argument;
      std::getline(file, program, '\0');
      if (program != HOLDFAST_TRAIN) continue;
      while (std::getline(file, argument, '\0'))
        if (argument == path(dir)) out.push_back(std::stoi(name));
    }
    return out;
  }
};

/// Three replicas of two ranks, then two, then three again: whatever is left of the run's nodes holds its
/// state.
TEST_F(LocalTraining, ARunThatLosesAReplicaGoesOnFromSnapshotsWithTheSameBits) {
  const Sets sets = with_local({"train.steps=60", "train.global_batch=24", "train.lanes=6",
                                "checkpoint.every=0", "shard.strategy=hybrid_shard", "shard.group=2"});
  ASSERT_EQ(
      train(1, "whole", {"train.steps=60", "train.global_batch=24", "train.lanes=6", "checkpoint.every=0"})
          .status,
      0);
  for (const auto& [world, until] : {std::pair{6, 5}, {4, 15}, {6, 25}}) {
    std::thread killer([&] { kill_when("run", until); });
    const Finished cut = train(world, "run", sets);
    killer.join();
    ASSERT_NE(cut.status, 0) << "it was killed";
    if (until > 5) {
      EXPECT_NE(cut.err.find("training resumes from snapshots of step"), std::string::npos) << cut.err;
    }
    const auto folder = local_level("run");
    EXPECT_EQ(std::filesystem::exists(folder / snapshot::folder_name(5, false)), world == 6);
  }
  // What was on the nodes of the replica that is gone is enough, too.
  const auto folder = local_level("run");
  for (const int rank : {0, 1, 2, 3})
    std::filesystem::remove_all(folder / snapshot::folder_name(rank, false));
  const Finished rest = train(4, "run", sets);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.err.find("training resumes from snapshots of step"), std::string::npos) << rest.err;
  EXPECT_EQ(digest("run"), digest("whole"));
  const auto whole = losses("whole");
  ASSERT_EQ(metrics("run").size(), whole.size());
  for (const auto& line : metrics("run"))
    if (!line.contains("lost")) {  // it did not die with rank 0
      const std::int64_t step = line.at("step");
      EXPECT_EQ(line.at("loss"), whole[step - 1]) << step;
    }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "a run that is over leaves nothing in memory";
}

/// What an early end depends on is in every snapshot.
TEST_F(LocalTraining, ARunThatLosesAReplicaEndsEarlyAtTheStepOfAWholeOne) {
  write_tokens("held_out.bin", vocabulary, 32 * 7 + 1);
  const Sets patient = {"train.steps=90",     "train.global_batch=24",
                        "train.lanes=6",      "checkpoint.every=0",
                        "eval.every=10",      "eval.patience=4",
                        "eval.min_delta=100", "data.validation=" + path("held_out.bin")};
  ASSERT_EQ(train(1, "whole", patient).status, 0);
  ASSERT_EQ(result("whole")["final_step"], 50) << "the loss of step 10 was not beaten four times";
  Sets sets = with_local(patient);
  sets.insert(sets.end(), {"shard.strategy=hybrid_shard", "shard.group=2"});
  for (const auto& [world, until] : {std::pair{4, 12}, {2, 25}}) {
    std::thread killer([&] { kill_when("run", until); });
    const Finished cut = train(world, "run", sets);
    killer.join();
    ASSERT_NE(cut.status, 0) << "it was killed";
  }
  const Finished rest = train(4, "run", sets);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.err.find("training resumes from snapshots of step"), std::string::npos) << rest.err;
  EXPECT_EQ(result("run")["final_step"], 50);
  EXPECT_EQ(digest("run"), digest("whole"));
}

TEST_F(LocalTraining, BitsAndPlansAreThoseOfTrainingWithoutIt) {
  const std::vector<std::pair<int, Sets>> layouts = {
      {1, {"shard.strategy=no_shard"}},
      {2, {"shard.strategy=no_shard", "checkpoint.local_every=3", "checkpoint.partner_every=3"}},
      {2, {"shard.strategy=full_shard"}},
      {2, {"shard.strategy=hfsdp", "shard.group=1", "checkpoint.partner_every=2"}},
      {3, {"shard.strategy=shard_grad_op", "checkpoint.local_every=3", "checkpoint.partner_every=6"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2"}},
      {4,
       {"shard.strategy=hfsdp", "shard.group=2", "checkpoint.local_every=3", "checkpoint.partner_every=3"}},
  };
  for (const std::string type : {"fp32", "bf16"}) {
    const Sets precision = {"precision.parameters=" + type,
                            "precision.reduce=" + type,
                            "precision.moments=" + type,
                            "train.global_batch=24",
                            "train.lanes=6",
                            "train.steps=7",
                            "checkpoint.every=0"};
    ASSERT_EQ(train(1, type, precision).status, 0);
    int run = 0;
    for (const auto& [world, layout] : layouts) {
      const std::string dir = type + std::to_string(run++);
      Sets sets = precision;
      sets.insert(sets.end(), layout.begin(), layout.end());
      const Finished done = train(world, dir, with_local(sets));
      const auto what = ::testing::PrintToString(sets) + " on " + std::to_string(world);
      ASSERT_EQ(done.status, 0) << what << "\n" << done.err;
      EXPECT_EQ(digest(dir), digest(type)) << what;
      EXPECT_EQ(losses(dir), losses(type)) << what;
      const auto buffers = numbers(done.err, "each rank has (\\d+) snapshot buffers");
      ASSERT_EQ(buffers.size(), 1u) << done.err;
      const auto planned = numbers(done.err, "each rank plans (\\d+) bytes of memory .* sends (\\d+) bytes");
      const auto used = numbers(done.err, "uses (\\d+) bytes of memory of (\\d+) planned");
      ASSERT_EQ(planned.size(), 2u) << done.err;
      EXPECT_EQ(used, (std::vector<std::int64_t>{planned[0], planned[0]})) << what;
      const auto steps = metrics(dir);
      for (std::size_t i = 1; i < steps.size(); ++i) {
        EXPECT_EQ(steps[i]["wire_bytes"], planned[1]) << what;
        EXPECT_EQ(steps[i]["allocations"], 0) << what << " step " << i + 1;
      }
    }
  }
}

TEST_F(LocalTraining, RollsBackAsItDoesWithoutIt) {
  const Sets jumpy = {"train.steps=16",           "train.global_batch=16", "optim.schedule=constant",
                      "optim.warmup_steps=0",     "checkpoint.every=4",    "guard.window=4",
                      "guard.norm_factor=1.05",   "guard.max_skips=1000",  "guard.on_spike=rollback",
                      "shard.strategy=full_shard"};
  const Finished without = train(2, "without", jumpy), with = train(2, "with", with_local(jumpy));
  ASSERT_EQ(without.status, 0) << without.err;
  ASSERT_EQ(with.status, 0) << with.err;
  EXPECT_NE(with.err.find("the run was rolled back to step"), std::string::npos) << with.err;
  EXPECT_EQ(digest("with"), digest("without"));
  EXPECT_EQ(losses("with"), losses("without"));
}

/// Whatever the steps of saves and of snapshots: each checkpoint has the state of its step.
TEST_F(LocalTraining, CheckpointsAreThoseOfTrainingWithoutIt) {
  const Sets saves = {"train.steps=12",     "train.global_batch=24", "train.lanes=6",
                      "checkpoint.every=2", "checkpoint.keep=100",   "shard.strategy=full_shard"};
  ASSERT_EQ(train(2, "without", saves).status, 0);
  int run = 0;
  for (const Sets& more : {Sets{},
                           {"checkpoint.local_every=3", "checkpoint.partner_every=3"},
                           {"checkpoint.local_every=5", "checkpoint.partner_every=10"}}) {
    const std::string dir = "run" + std::to_string(run++);
    Sets sets = saves;
    sets.insert(sets.end(), more.begin(), more.end());
    const Finished done = train(2, dir, with_local(sets));
    ASSERT_EQ(done.status, 0) << done.err;
    for (int step = 2; step <= 12; step += 2)
      EXPECT_EQ(checkpoint::read_manifest(checkpoint(dir, step)).state_digest,
                checkpoint::read_manifest(checkpoint("without", step)).state_digest)
          << dir << " step " << step;
  }
}

/// SIGKILL to all ranks at once, at any moment of any step.
TEST_F(LocalTraining, AKilledRunLeavesACommonStepAndGoesOnFromThere) {
  const int times = std::stoi(env::get("HOLDFAST_KILLS").value_or("3"));
  constexpr int world = 2;
  const Sets run_sets = {"train.steps=60", "checkpoint.every=0", "shard.strategy=full_shard",
                         "drill.allowed=true"};
  ASSERT_EQ(train(world, "whole", run_sets).status, 0);
  for (int time = 0; time < times; ++time) {
    const std::string dir = "run" + std::to_string(time);
    const Sets sets = with_local(run_sets);
    std::filesystem::create_directory(folder_ / dir);
    write(dir + "/hold", "0 300");  // the last step is not taken
    std::thread killer([&] { kill_when(dir, 5, std::chrono::microseconds(1700 * (time + 1) % 23'000)); });
    const Finished done = train(world, dir, sets);
    killer.join();
    std::filesystem::remove(folder_ / dir / "hold");
    ASSERT_NE(done.status, 0) << "it was killed";
    const auto finished = lines(dir);
    ASSERT_GE(finished, 5);

    const auto folder = local_level(dir);
    const LocalRun run = local_run_of(
        config::load((folder_ / dir / "config.toml").string()).config, config::load_model(path("model.toml")),
        shard::mesh_of(config::Strategy::full_shard, 0, world, world, 0), "", "");
    std::map<std::int64_t, int> ranks_with;
    for (int rank = 0; rank < world; ++rank) {
      const auto at = folder / snapshot::folder_name(rank, false);
      const auto outline = checkpoint::outline_of(at);
      ASSERT_TRUE(outline && outline->identity) << rank;
      const auto file = checkpoint::StateFolder::find(at, *outline->identity, outline->buffer_bytes);
      ASSERT_TRUE(file) << rank;
      for (int buffer = 0; buffer < file->buffers(); ++buffer)
        if (const auto what = file->sealed(buffer)) {
          EXPECT_EQ(what->digests,
                    checkpoint::piece_digests(buffer_view_of(run, rank, file->buffer(buffer).data())));
          ++ranks_with[what->point.step];
        }
    }
    std::int64_t newest = -1;
    for (const auto& [step, ranks] : ranks_with)
      if (ranks == world) newest = std::max(newest, step);
    EXPECT_GE(newest, finished - 1) << "kill " << time;

    const Finished rest = train(world, dir, sets);
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_NE(rest.err.find("training resumes from snapshots of step " + std::to_string(newest) + ","),
              std::string::npos)
        << newest << "\n"
        << rest.err;
    EXPECT_EQ(digest(dir), digest("whole"));
    EXPECT_EQ(losses(dir), losses("whole"));
  }
}

}  // namespace
}  // namespace holdfast::train

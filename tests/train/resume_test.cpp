// A run that was cut short goes on as if it had not been; what is damaged is named and passed over.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <thread>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Resume : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    ASSERT_EQ(train(1, "whole").status, 0);
  }
  void wait_for_metrics(const std::string& dir) const {
    for (int i = 0; i < 4000 && !std::filesystem::exists(folder_ / dir / "metrics.jsonl"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  static void flip_byte(const std::filesystem::path& file, std::streamoff at) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    const int byte = f.get();
    f.seekp(at);
    f.put(static_cast<char>(byte ^ 0x10));
  }
};

TEST_F(Resume, GoesOnFromTheMiddleOnTheSameAndOnOtherWorldsAndStrategies) {
  struct Layout {
    int world;
    Sets sets;
  };
  const std::vector<Layout> layouts = {{1, {"shard.strategy=no_shard"}},
                                       {2, {"shard.strategy=full_shard"}},
                                       {4, {"shard.strategy=hybrid_shard", "shard.group=2"}},
                                       {4, {"shard.strategy=no_shard"}}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string dir = "run" + std::to_string(i);
    const Layout &before = layouts[i], &after = layouts[(i + 1) % layouts.size()];
    ASSERT_EQ(train(before.world, dir, before.sets).status, 0);
    std::filesystem::remove_all(checkpoint(dir, 10));         // as if it had ended after step 5,
    std::filesystem::remove(folder_ / dir / "durable.json");  // also by its record
    const Finished done = train(after.world, dir, after.sets);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 5"));
    EXPECT_EQ(digest(dir), digest("whole"));
    EXPECT_EQ(losses(dir), losses("whole"));
    EXPECT_EQ(metrics(dir)[4]["attempt"], 1);
    EXPECT_EQ(metrics(dir)[5]["attempt"], 2);
  }
}

TEST_F(Resume, ByDefaultOnFewerAndOnMoreRanks) {
  const auto with = [&](int steps, Sets sets) {
    sets.insert(sets.end(),
                {"train.lanes=0", "optim.schedule=constant", "train.steps=" + std::to_string(steps)});
    return sets;
  };
  const std::pair<int, Sets> layouts[] = {{2, {"shard.strategy=hybrid_shard", "shard.group=1"}},
                                          {4, {"shard.strategy=hybrid_shard", "shard.group=2"}},
                                          {1, {"shard.strategy=no_shard"}},
                                          {8, {"shard.strategy=no_shard"}},
                                          {3, {"shard.strategy=no_shard"}},
                                          {4, {"shard.strategy=hfsdp", "shard.group=2"}}};
  const int each = 5, all = each * static_cast<int>(std::size(layouts));
  const Finished whole = train(2, "open", with(all, {"shard.strategy=full_shard"}));
  ASSERT_EQ(whole.status, 0) << whole.err;
  int steps = 0;
  for (const auto& [world, sets] : layouts) {
    const Finished done = train(world, "moves", with(steps + each, sets));
    ASSERT_EQ(done.status, 0) << done.err;
    const std::string from =
        steps == 0 ? "" : "training resumes from the checkpoint of step " + std::to_string(steps);
    EXPECT_THAT(done.err, HasSubstr(from));
    steps += each;
  }
  EXPECT_EQ(digest("moves"), digest("open"));
  EXPECT_EQ(losses("moves"), losses("open"));
}

/// In the middle of an epoch of the data, since one has 156 samples and a step 32.
TEST_F(Resume, FromFourRanksToTwoToEightNoSampleIsLostOrRepeated) {
  for (const std::string type : {"fp32", "bf16"}) {
    const Sets common = {"optim.schedule=constant", "precision.parameters=" + type,
                         "precision.reduce=" + type};
    const auto with = [&](Sets sets) { return sets.insert(sets.end(), common.begin(), common.end()), sets; };
    ASSERT_EQ(train(1, type, with({})).status, 0);
    const std::string dir = type + " in parts";
    for (const auto& [world, steps, strategy] :
         {std::tuple{4, 3, "hfsdp"}, {2, 6, "full_shard"}, {8, 10, "shard_grad_op"}}) {
      const Finished part =
          train(world, dir,
                with({"train.steps=" + std::to_string(steps), std::string("shard.strategy=") + strategy}));
      ASSERT_EQ(part.status, 0) << part.err;
    }
    EXPECT_EQ(digest(dir), digest(type));
    EXPECT_EQ(losses(dir), losses(type));
    EXPECT_EQ(result(dir)["tokens"], result(type)["tokens"]);
  }
}

TEST_F(Resume, AFinishedRunStaysFinished) {
  const auto before = result("whole");
  const Finished again = train(2, "whole");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(result("whole")["state_digest"], before["state_digest"]);
  EXPECT_EQ(result("whole")["final_loss"], before["final_loss"]);
  EXPECT_EQ(metrics("whole").size(), 10u);
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndTheOneBeforeIsUsed) {
  ASSERT_EQ(train(2, "run").status, 0);
  const auto shard = checkpoint("run", 10) / "shard-00001.h5";
  flip_byte(shard, static_cast<std::streamoff>(std::filesystem::file_size(shard)) - 100);
  const Finished done = train(4, "run", {"shard.strategy=full_shard"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("step 10 is not whole"));
  EXPECT_THAT(done.err, HasSubstr("is damaged in the checkpoint"));
  EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 5"));
  EXPECT_EQ(digest("run"), digest("whole"));
}

TEST_F(Resume, ATornShardAndACorruptManifestAreFoundToo) {
  ASSERT_EQ(train(2, "run", {"checkpoint.every=3", "checkpoint.keep=9"}).status, 0);  // 3, 6, 9, 10
  const auto shard = checkpoint("run", 10) / "shard-00000.h5",
             manifest = checkpoint("run", 9) / "manifest.json";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2);
  flip_byte(manifest, 500);
  const Finished done = train(2, "run", {"checkpoint.every=3", "checkpoint.keep=9"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 6"));
  EXPECT_EQ(digest("run"), digest("whole"));
}

TEST_F(Resume, WithNothingSoundLeftItStopsAndSaysHowToGoOn) {
  ASSERT_EQ(train(1, "run").status, 0);
  for (int step : {5, 10}) {
    const auto shard = checkpoint("run", step) / "shard-00000.h5";
    std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2);
  }
  for (int world : {1, 2}) {
    const Finished done = train(world, "run");
    EXPECT_EQ(done.status, 93) << done.err;
    EXPECT_THAT(done.err, ::testing::AllOf(HasSubstr("no checkpoint in"), HasSubstr("step-00000010"),
                                           HasSubstr("step-00000005"), HasSubstr("run.resume")));
    EXPECT_TRUE(std::filesystem::exists(checkpoint("run", 10)));
  }
}

TEST_F(Resume, WhatIsMissingIsNotTakenForDamagedNorReplaced) {
  ASSERT_EQ(train(1, "run").status, 0);
  for (int step : {5, 10}) std::filesystem::remove(checkpoint("run", step) / "shard-00000.h5");
  for (int world : {1, 2}) {
    const Finished done = train(world, "run", {"checkpoint.read_patience_s=1"});
    EXPECT_EQ(done.status, 75) << done.err;
    EXPECT_THAT(done.err, ::testing::AllOf(HasSubstr("step-00000010"), HasSubstr("shard-00000.h5")));
  }
}

TEST_F(Resume, FromAPathAndNotFromNothing) {
  const std::string from = "run.resume=\"" + checkpoint("whole", 5).string() + "\"";
  const Finished named = train(1, "other", {from});
  ASSERT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(digest("other"), digest("whole"));
  EXPECT_EQ(metrics("other").front()["step"], 6);
  // Its folder shows that it is not there: no patience is needed to see that.
  const Finished absent = train(2, "third", {"run.resume=\"" + path("nowhere") + "\""});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("there is no checkpoint " + path("nowhere")));
  EXPECT_THAT(absent.err, testing::Not(HasSubstr("trying again")));
  // A folder that is missing may be on a file system that is away.
  const Finished away =
      train(1, "fourth", {"run.resume=\"" + path("away/nowhere") + "\"", "checkpoint.read_patience_s=1"});
  EXPECT_EQ(away.status, 75);
  EXPECT_THAT(away.err, HasSubstr("nowhere cannot be read now"));
}

/// The learning rate may jump with them; that is not to happen without a word.
TEST_F(Resume, SaysWithWhichOtherSettingsItGoesOn) {
  const std::string says = "other settings than the run of its checkpoint had: ";
  ASSERT_EQ(train(1, "run", {"train.steps=5"}).status, 0);
  const Finished same = train(1, "run", {"train.steps=5"});
  EXPECT_THAT(same.err, testing::Not(HasSubstr(says)));
  const Finished longer = train(2, "run", {"train.steps=7", "optim.lr=0.004", "eval.samples=3"});
  ASSERT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr(says + "train.steps is 7, and was 5; optim.lr is 0.004, and was "));
  EXPECT_THAT(longer.err, testing::Not(HasSubstr("eval.samples is")));
  const Finished forked =
      train(1, "fork", {"run.resume=\"" + checkpoint("run", 5).string() + "\"", "train.steps=9"});
  ASSERT_EQ(forked.status, 0) << forked.err;
  EXPECT_THAT(forked.err, HasSubstr(says + "train.steps is 9, and was 7; optim.lr is "));
}

TEST_F(Resume, NoneRefusesADirectoryThatHoldsARun) {
  EXPECT_EQ(train(1, "fresh", {"run.resume=none"}).status, 0);
  const Finished again = train(1, "fresh", {"run.resume=none"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("already holds a run up to step 10"));
}

TEST_F(Resume, RefusesACheckpointOfAnotherModel) {
  auto text = files::read_text(path("model.toml"));
  text.replace(text.find("ffn = 88"), 8, "ffn = 96");
  write("model.toml", text);
  for (int world : {1, 2}) {
    const Finished done = train(world, "whole");
    EXPECT_EQ(done.status, 2);
    EXPECT_THAT(done.err, HasSubstr("belongs to another model"));
  }
}

TEST_F(Resume, AfterSigkillAnywhereTheEndIsTheSame) {
  const Sets longer = {"train.steps=300", "train.global_batch=8", "train.micro_batch=1",
                       "checkpoint.every=20"};
  ASSERT_EQ(train(1, "long", longer).status, 0);
  for (int world : {1, 2}) {
    const std::string dir = "killed" + std::to_string(world);
    const pid_t child = spawn(command(world, dir, longer));
    for (int i = 0; i < 2000 && !std::filesystem::exists(checkpoint(dir, 60)); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(exit_status(status), 128 + SIGKILL) << "it was to be killed before its end";
    Finished done;
    for (int i = 0; i < 20; ++i) {  // ranks whose mpirun died need a moment to notice
      done = train(world, dir, longer);
      if (done.status != 2) break;
      EXPECT_THAT(done.err, HasSubstr("belongs to a run that is still going on"));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step"));
    EXPECT_EQ(digest(dir), digest("long"));
    EXPECT_EQ(losses(dir), losses("long"));
  }
}

TEST_F(Resume, AskedToStopItSavesAndIsContinuedAsIfNothingHadHappened) {
  const Sets longer = {"train.steps=400", "train.global_batch=8", "train.micro_batch=1",
                       "checkpoint.every=0"};
  ASSERT_EQ(train(1, "long", longer).status, 0);
  for (const auto& [world, signal, name] : {std::tuple{1, SIGTERM, "SIGTERM"}, {2, SIGUSR1, "SIGUSR1"}}) {
    const std::string dir = std::string("stopped by ") + name;
    Command c = command(world, dir, longer);
    c.output = path(name);
    const pid_t child = spawn(c);
    wait_for_metrics(dir);
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(exit_status(status), 75) << "to be requeued";
    EXPECT_THAT(files::read_text(path(name)), HasSubstr(std::string("(") + name + ") (its state is saved)"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / dir / "result.json")) << "it is not done";
    const auto stopped_after = metrics(dir).back()["step"].get<int>();
    ASSERT_LT(stopped_after, 400) << "it was to be stopped before its end";
    const Finished done = train(world, dir, longer);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("step " + std::to_string(stopped_after) + ",")) << "no step was lost";
    EXPECT_EQ(digest(dir), digest("long"));
    EXPECT_EQ(losses(dir), losses("long"));
  }
}

TEST_F(Resume, ASecondSigtermEndsItAtOnce) {
  const pid_t child = spawn(command(1, "run", {"train.global_batch=2097152"}));  // a step takes minutes
  wait_for_metrics("run");
  for (int i = 0; i < 2; ++i) {
    ::kill(child, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(exit_status(status), 128 + SIGTERM);
}

TEST_F(Resume, AFullDiskCostsTheCheckpointAndNothingElse) {
  const Sets longer = {"train.steps=300", "train.global_batch=8", "train.micro_batch=1",
                       "checkpoint.every=40"};
  ASSERT_EQ(train(1, "long", longer).status, 0);
  Command c = command(1, "run", longer, {"/bin/sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"});
  c.output = path("log");
  const pid_t child = spawn(c);
  for (int i = 0; i < 4000 && !std::filesystem::exists(checkpoint("run", 40)); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const rlimit limit = {32768,
                        32768};  // from now on no file grows over 32 KiB: no shard fits, and not all metrics
  ASSERT_EQ(::prlimit(child, RLIMIT_FSIZE, &limit, nullptr), 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(exit_status(status), 1);
  const std::string log = files::read_text(path("log"));
  EXPECT_THAT(log, HasSubstr("rank 0 could not save step"));
  EXPECT_THAT(log, HasSubstr("is missing from the metrics"));
  EXPECT_THAT(log, HasSubstr("its last state (step 300) could not be saved"))
      << "training went on to its end";
  EXPECT_TRUE(std::filesystem::exists(checkpoint("run", 40) / "manifest.json"));
  const Finished again = train(1, "run", longer);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("training resumes from the checkpoint of step"));
  EXPECT_EQ(digest("run"), digest("long"));
}

}  // namespace
}  // namespace holdfast::train

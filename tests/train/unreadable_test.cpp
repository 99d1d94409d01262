// A restart while checkpoints cannot be read, with the errors of a file system that is ill in the real
// program: what comes back in time was only away, what does not ends the run with 75, and nothing is lost
// either way.
#include <gmock/gmock.h>
#include <signal.h>

#include <cerrno>
#include <map>
#include <thread>

#include "tests/checkpoint/fixture.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Illness {
  std::string path;  ///< its end
  int reason = 0;
  std::string how;  ///< once, ever, or seconds
  std::string call = "open";
  std::string rank = "";  ///< of them only this one; "": all
};

class Unreadable : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    ASSERT_EQ(train(1, "whole", {"optim.schedule=constant"}).status, 0);
    ASSERT_EQ(train(2, "half", until_7).status, 0);
    ASSERT_TRUE(fs::exists(checkpoint("half", 5)));
    ASSERT_TRUE(fs::exists(checkpoint("half", 7)));
  }
  /// A run directory as the first half of the run has left it.
  void begin_again(const std::string& dir) const {
    fs::remove_all(folder_ / dir);
    fs::copy(folder_ / "half", folder_ / dir, fs::copy_options::recursive);
  }
  Finished train_with(const Illness& ill, int world, const std::string& dir, Sets sets = {}) const {
    return train(world, dir, sets,
                 {"env", "LD_PRELOAD=" FAILING_READS, "FAILING_PATH=" + ill.path,
                  "FAILING_ERRNO=" + std::to_string(ill.reason), "FAILING_HOW=" + ill.how,
                  "FAILING_CALL=" + ill.call, "FAILING_RANK=" + ill.rank});
  }
  /// Every file of the checkpoints with its content, and every folder.
  std::map<std::string, std::string> content(const std::string& dir) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / dir / "checkpoints"))
      out[entry.path().string()] =
          entry.is_regular_file() ? checkpoint::testing::read_file(entry.path()) : "";
    return out;
  }
  void raise_schema(const std::string& dir, int step) const {
    const fs::path manifest = checkpoint(dir, step) / "manifest.json";
    checkpoint::testing::write_file(
        manifest, checkpoint::testing::with_schema_version(checkpoint::testing::read_file(manifest), 99));
  }
  void expect_same_bits(const Finished& done, const std::string& dir) const {
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 7"));
    EXPECT_EQ(digest(dir), digest("whole"));
    EXPECT_EQ(losses(dir), losses("whole"));
  }

  /// Every second pair of a reason and an illness; of what is not there (ENOENT), which code tells apart,
  /// all.
  static std::vector<Illness> pairs(const std::vector<Illness>& ills) {
    std::vector<Illness> out;
    int parity = 0;
    for (const int reason : {ELOOP, EIO, ESTALE, EACCES, ENOENT}) {
      for (std::size_t i = parity++ % 2; i < ills.size(); i += reason == ENOENT ? 1 : 2) {
        out.push_back(ills[i]);
        out.back().reason = reason;
      }
    }
    return out;
  }

  const Sets until_7 = {"train.steps=7", "optim.schedule=constant"};
  using TrainingFixture::checkpoint;
};

constexpr const char* manifest = "/step-00000007/manifest.json";
constexpr const char* shard = "/step-00000007/shard-00001.h5";
constexpr const char* step_folder = "/checkpoints/step-00000007";
constexpr const char* all_checkpoints = "/checkpoints";
constexpr const char* tokens = "/tokens.bin";

TEST_F(Unreadable, TokensForAWhileAndForEver) {
  for (const char* call : {"open", "read"}) {
    begin_again("run");
    const Finished done = train_with({tokens, EIO, "1", call}, 2, "run", {"optim.schedule=constant"});
    expect_same_bits(done, "run");
    EXPECT_THAT(done.err, HasSubstr("tokens.bin cannot be read now"));
    begin_again("run");
    const auto before = content("run");
    const Finished given_up = train_with({tokens, ESTALE, "ever", call}, 1, "run",
                                         {"optim.schedule=constant", "checkpoint.read_patience_s=0"});
    EXPECT_EQ(given_up.status, 75) << given_up.err;
    EXPECT_THAT(given_up.err, HasSubstr("tokens.bin"));
    EXPECT_EQ(content("run"), before);
  }
}

TEST_F(Unreadable, OnceAndNoMore) {
  for (const Illness& ill : pairs({{manifest, 0, "once"},
                                   {shard, 0, "once"},
                                   {all_checkpoints, 0, "once"},
                                   {manifest, 0, "once", "read"},
                                   {shard, 0, "once", "read"}})) {
    SCOPED_TRACE(ill.path + ", " + std::strerror(ill.reason) + ", " + ill.call);
    begin_again("run");
    const Finished done = train_with(ill, 1, "run", {"optim.schedule=constant"});
    expect_same_bits(done, "run");
    EXPECT_THAT(done.err, HasSubstr("failing_reads: " + (folder_ / "run").string()));
  }
}

/// A thousand ranks would read the same file.
TEST_F(Unreadable, AManifestIsReadByRank0Alone) {
  begin_again("run");
  const Finished done = train_with({manifest, EIO, "ever", "open", "1"}, 2, "run",
                                   {"optim.schedule=constant", "shard.strategy=full_shard"});
  expect_same_bits(done, "run");
  EXPECT_THAT(done.err, Not(HasSubstr("failing_reads: ")));
}

TEST_F(Unreadable, ForAWhileOnOneRankOrAll) {
  int i = 0;
  const int reasons[] = {ESTALE, EIO, EACCES, ELOOP, ENOENT};
  for (const Illness& ill : {Illness{manifest, 0, "1"},
                             {shard, 0, "1"},
                             {shard, 0, "1", "read"},
                             {all_checkpoints, 0, "1"},
                             {manifest, 0, "1", "read"}}) {
    const int reason = reasons[i++];
    SCOPED_TRACE(ill.path + ", " + std::strerror(reason) + ", " + ill.call);
    begin_again("run");
    const Finished done = train_with({ill.path, reason, ill.how, ill.call}, 2, "run",
                                     {"optim.schedule=constant", "shard.strategy=full_shard"});
    expect_same_bits(done, "run");
    EXPECT_THAT(done.err, HasSubstr("cannot be read now"));
  }
}

TEST_F(Unreadable, ForEverItEndsToBeContinuedAndNothingIsLost) {
  const Sets sets = {"optim.schedule=constant", "checkpoint.read_patience_s=0"};
  begin_again("run");
  const auto before = content("run");
  int world = 1;
  for (const Illness& ill : pairs({{manifest, 0, "ever"},
                                   {shard, 0, "ever"},
                                   {all_checkpoints, 0, "ever"},
                                   {shard, 0, "ever", "read"}})) {
    world = 3 - world;
    SCOPED_TRACE(ill.path + ", " + std::strerror(ill.reason) + ", " + ill.call);
    const Finished done = train_with(ill, world, "run", sets);
    EXPECT_EQ(done.status, 75) << done.err;
    EXPECT_THAT(done.err, HasSubstr(ill.path == all_checkpoints ? "/checkpoints" : "step-00000007"));
    EXPECT_THAT(done.err, HasSubstr(fs::path(ill.path).filename().string()));
    EXPECT_EQ(content("run"), before);
  }
  expect_same_bits(train(1, "run", sets), "run");
}

TEST_F(Unreadable, FoldersThatAreMovedAwayComeBack) {
  for (const fs::path path : {step_folder + 1, all_checkpoints + 1}) {
    begin_again("run");
    const fs::path away = folder_ / "away", place = folder_ / "run" / path;
    fs::rename(place, away);
    std::jthread back([&] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      fs::rename(away, place);
    });
    expect_same_bits(train(2, "run", {"optim.schedule=constant"}), "run");
  }
}

/// The file system that should hold the checkpoints is not mounted.
TEST_F(Unreadable, AnEmptyFolderIsNoNewRun) {
  const Sets sets = {"optim.schedule=constant", "checkpoint.read_patience_s=1"};
  begin_again("run");
  const fs::path place = folder_ / "run/checkpoints";
  fs::rename(place, folder_ / "away");
  fs::create_directory(place);
  for (const int world : {1, 2}) {
    const Finished done = train(world, "run", sets);
    EXPECT_EQ(done.status, 75);
    EXPECT_THAT(done.err,
                AllOf(HasSubstr("step-00000007"), HasSubstr("by the record of the run it is durable")));
  }
  EXPECT_EQ(train(1, "run", {"run.resume=none"}).status, 2);
  fs::remove(place);
  fs::rename(folder_ / "away", place);
  expect_same_bits(train(1, "run", sets), "run");
}

TEST_F(Unreadable, ANewerFormatIsLeftAsItIs) {
  for (const bool all : {false, true}) {
    begin_again("run");
    raise_schema("run", 7);
    if (all) raise_schema("run", 5);
    const auto before = content("run");
    for (const int world : {1, 2}) {
      const Finished done = train(world, "run", {"optim.schedule=constant"});
      EXPECT_EQ(done.status, 93) << done.err;
      EXPECT_THAT(done.err,
                  AllOf(HasSubstr("step-00000007"), HasSubstr("manifest.json"), HasSubstr("version 99")));
      EXPECT_EQ(content("run"), before);
    }
  }
}

/// By name, an older one is gone on from; what is written again is put aside until a later step is durable.
TEST_F(Unreadable, SomebodyMaySayToGoOnFromAnOlderOne) {
  begin_again("run");
  raise_schema("run", 7);
  const std::string from = "run.resume=\"" + checkpoint("run", 5).string() + "\"";
  const Finished part = train(1, "run", {"optim.schedule=constant", "train.steps=7", from});
  ASSERT_EQ(part.status, 0) << part.err;
  EXPECT_THAT(part.err, HasSubstr("the older step-00000007 is put aside as step-00000007.replaced-1"));
  const Finished done = train(2, "run", {"optim.schedule=constant"});
  expect_same_bits(done, "run");
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/step-00000007.replaced-1"))
      << "of a newer format: this version does not know what it would remove";
}

}  // namespace
}  // namespace holdfast::train

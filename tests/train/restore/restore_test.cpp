// Restores one by one: what is repaired, what is read, what is left as it was. See disruptions_test.cpp for
// all that can happen together.
#include "src/train/restore/restore.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "checkpoint/index/durable_record.hpp"
#include "src/base/error.hpp"
#include "tests/train/disrupted_run.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using config::Strategy;
using testing::Cluster;
using testing::DisruptedRun;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::RankAfter;
using testing::RestartOptions;

/// Two nodes of two ranks, snapshots of steps 99 and 100 everywhere, a checkpoint of step 90.
class Restoring : public ::testing::Test {
 protected:
  void begin(const Cluster& cluster) {
    run_.emplace(cluster, folder_.path());
    for (int rank = 0; rank < run_->world(); ++rank) node_of_.push_back(rank / cluster.ranks_per_node);
    run_->save(90);
    for (int rank = 0; rank < run_->world(); ++rank)
      for (const std::int64_t step : {99, 100})
        run_->snapshot(home(rank), rank, false, buffer_of(step), step);
    network_.emplace(run_->world());
  }
  int home(int rank) const { return node_of_[rank]; }
  static int buffer_of(std::int64_t step) { return static_cast<int>(step % 2); }
  std::vector<RankAfter> restart(const RestartOptions& options = {}) {
    return run_->restart(node_of_, options, *network_);
  }
  void expect_at(const std::vector<RankAfter>& after, std::int64_t step, const std::string& level) {
    for (const RankAfter& rank : after) {
      EXPECT_EQ(rank.from.point, run_->point(step)) << rank.from.note;
      EXPECT_EQ(rank.from.level, level);
      EXPECT_EQ(rank.from.digest, run_->digest(step));
      EXPECT_TRUE(rank.holds_truth);
    }
  }

  checkpoint::testing::Folder folder_;
  std::optional<DisruptedRun> run_;
  std::optional<tests::FakeNetwork> network_;
  std::vector<int> node_of_;
};

TEST_F(Restoring, OwnSnapshotsAreAdoptedWhereTheyLie) {
  begin({});
  const auto after = restart();
  expect_at(after, 100, "local");
  for (const RankAfter& rank : after) {
    EXPECT_EQ(rank.buffer, buffer_of(100));
    EXPECT_TRUE(rank.sealed);
    EXPECT_EQ(rank.from.note, "");
    EXPECT_EQ(rank.from.bytes_received, 0);
    EXPECT_EQ(rank.from.bytes_read, 0);
    EXPECT_EQ(rank.from.network, "") << "nothing was sent, so nothing was opened";
  }
}

TEST_F(Restoring, ADamagedPieceComesFromTheReplicaAndNothingElse) {
  begin({});
  run_->flip(0, 1, false, buffer_of(100), 4, 77);
  const auto after = restart();
  expect_at(after, 100, "peer");
  const RestoredFrom& from = after[0].from;
  EXPECT_EQ(from.pieces[static_cast<int>(Level::peer)], 1);
  EXPECT_THAT(from.note, HasSubstr("rank 1's piece 4 of step 100 is damaged at the level local"));
  EXPECT_LT(from.bytes_received, run_->state_bytes() / 4);
  EXPECT_EQ(after[1].buffer, buffer_of(100)) << "repaired in its place";
  EXPECT_TRUE(after[1].sealed);
  expect_at(restart(), 100, "local");  // and it stays repaired
}

TEST_F(Restoring, AReplacedNodePullsAllFromItsReplicas) {
  begin({});
  node_of_ = {5, 5, 1, 1};
  const auto after = restart();
  expect_at(after, 100, "peer");
  EXPECT_EQ(after[0].from.bytes_read, 0) << "without the shared level";
  EXPECT_EQ(after[0].from.bytes[static_cast<int>(Level::peer)], run_->state_bytes());
  EXPECT_GE(after[0].from.bytes_received, run_->state_bytes());
  expect_at(restart(), 100, "local");  // it has a snapshot of its own now
}

TEST_F(Restoring, WhatArrivesSpoiltIsHadFromElsewhere) {
  begin({Strategy::no_shard, 0, 3, 1});
  node_of_ = {5, 1, 2};
  network_->spoil(1, 1);
  const auto after = restart();
  expect_at(after, 100, "peer");
  EXPECT_THAT(after[0].from.note, HasSubstr("damaged"));
}

TEST_F(Restoring, ADeadNetworkLeavesTheSharedLevel) {
  begin({});
  node_of_ = {5, 5, 1, 1};
  RestartOptions options;
  options.network_breaks = true;
  const auto after = restart(options);
  expect_at(after, 90, "shared");
  EXPECT_THAT(after[0].from.note, ::testing::AllOf(HasSubstr("could not send each other pieces"),
                                                   HasSubstr("is on another node, which could not send it")));
}

TEST_F(Restoring, ReplicasShareTheReading) {
  begin({Strategy::hybrid_shard, 0, 2, 2, DType::fp32, 20'000});
  RestartOptions options;
  options.local = false;
  const auto after = restart(options);
  expect_at(after, 90, "shared");
  const RestoredFrom& from = after[0].from;
  EXPECT_LE(from.bytes_read, run_->state_bytes() * 102 / 100) << "each byte once";
  EXPECT_GE(from.bytes_read, run_->state_bytes());
  EXPECT_EQ(from.bytes_received, run_->state_bytes()) << "what the other replica read";
  options.network = false;
  const RestoredFrom alone = restart(options)[0].from;
  EXPECT_GE(alone.bytes_read, 2 * run_->state_bytes());
  EXPECT_EQ(alone.bytes_received, 0);
}

TEST_F(Restoring, ReplicasThatGotDifferentStatesReadForThemselves) {
  begin({});
  RestartOptions options;
  options.local = false;
  network_->spoil(1, 0);
  const auto after = restart(options);
  expect_at(after, 90, "shared");
  EXPECT_THAT(after[0].from.note, HasSubstr("replicas got different states of step 90"));
}

TEST_F(Restoring, ABadShardIsRepairedByASnapshotOfTheSameStep) {
  begin({Strategy::full_shard, 0, 2, 2});
  run_->save(100);
  node_of_ = {5, 1, 1, 1};          // ranks 0 and 1 have nothing, and no replica
  fs::remove(run_->shard(100, 3));  // rank 3 has its own
  const auto after = restart();
  expect_at(after, 100, "shared");
  EXPECT_THAT(after[0].from.note, HasSubstr("shard-00003.h5"));
  node_of_ = {5, 5, 1, 1};
}

TEST_F(Restoring, ARollbackIsToTheCheckpointWhateverTheLocalLevelHas) {
  begin({});
  RestartOptions options;
  options.order.rollback = true;
  options.order.restarted = true;
  const auto after = restart(options);
  expect_at(after, 90, "shared");
  for (const RankAfter& rank : after) EXPECT_TRUE(rank.sealed);
}

TEST_F(Restoring, ANamedCheckpointIsTheOnlyOne) {
  begin({});
  RestartOptions options;
  options.order.resume = checkpoint::committed_path(run_->dir().checkpoints(), 90).string();
  expect_at(restart(options), 90, "shared");
  options.order.restarted = true;
  expect_at(restart(options), 100, "local");
}

TEST_F(Restoring, ADamagedNamedCheckpointEndsTheRun) {
  begin({});
  run_->flip_shard(90, 2, 5);
  RestartOptions options;
  options.order.resume = checkpoint::committed_path(run_->dir().checkpoints(), 90).string();
  try {
    restart(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::runtime);
    EXPECT_THAT(error.what(),
                ::testing::AllOf(HasSubstr("cannot resume from"), HasSubstr("Resume from another")));
  }
}

TEST_F(Restoring, NoneRefusesToMix) {
  begin({});
  RestartOptions options;
  options.order.resume = "none";
  EXPECT_THROW(restart(options), Error);
}

TEST_F(Restoring, NothingAnywhereIsAFreshStart) {
  begin({});
  fs::remove_all(checkpoint::committed_path(run_->dir().checkpoints(), 90));
  node_of_ = {5, 5, 6, 6};
  for (const RankAfter& rank : restart()) {
    EXPECT_TRUE(rank.from.fresh);
    EXPECT_EQ(rank.from.level, "fresh");
    EXPECT_EQ(rank.from.note, "");
  }
}

/// What cannot be read proves nothing: it is waited for, and nothing older is taken for it.
class Unreadable : public Restoring {
 protected:
  void SetUp() override {
    begin({});
    options_.local = false;
  }
  fs::path step(std::int64_t n) const { return checkpoint::committed_path(run_->dir().checkpoints(), n); }
  /// All ranks end so.
  void expect_failure(Exit exit, const std::vector<std::string>& words) {
    for (const Error& error : run_->failed_restart(node_of_, options_, *network_)) {
      EXPECT_EQ(error.exit(), exit) << error.what();
      for (const auto& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
  }
  RestartOptions options_;
};

TEST_F(Unreadable, WhatComesBackInTimeWasOnlyAway) {
  options_.patience.limit = std::chrono::seconds(60);
  const std::vector<fs::path> paths = {step(90) / "manifest.json", step(90) / "shard-00002.h5", step(90),
                                       run_->dir().checkpoints()};
  for (const fs::path& path : paths) {
    const fs::path away = folder_.path() / "away";
    fs::rename(path, away);
    std::atomic<int> waits = 0;
    std::thread back;
    options_.patience.waits = [&](const Error&, bool) {
      if (++waits == 3) back = std::thread([&] { fs::rename(away, path); });
    };
    // A folder that is empty does not look like a run that has not begun.
    options_.order.durable = std::vector<std::int64_t>{90};
    const auto after = run_->restart(node_of_, options_, *network_);
    back.join();
    SCOPED_TRACE(path.string());
    expect_at(after, 90, "shared");
    EXPECT_GE(waits, 3);
  }
}

TEST_F(Unreadable, WhatStaysAwayEndsTheRunToBeContinued) {
  run_->save(100);
  for (const char* name : {"manifest.json", "shard-00002.h5"}) {
    const fs::path path = step(100) / name, away = folder_.path() / "away";
    fs::rename(path, away);
    expect_failure(Exit::transient, {"step-00000100", name});
    fs::create_symlink(name, path);  // to itself
    expect_failure(Exit::transient, {"step-00000100", name, "Too many levels of symbolic links"});
    fs::remove(path);
    fs::rename(away, path);
  }
  expect_at(run_->restart(node_of_, options_, *network_), 100, "shared");
}

TEST_F(Unreadable, ANewerFormatIsNotWaitedFor) {
  options_.patience.limit = std::chrono::hours(1);
  run_->save(100);
  const fs::path manifest = step(100) / "manifest.json";
  checkpoint::testing::write_file(
      manifest, checkpoint::testing::with_schema_version(checkpoint::testing::read_file(manifest), 77));
  expect_failure(Exit::no_requeue, {"step-00000100", "manifest.json", "version 77"});
}

/// Snapshots of step 100 need no checkpoint of step 90; for one of step 200 they are too old.
TEST_F(Unreadable, WhatLiesInMemoryIsTakenWhenItIsAsNew) {
  options_.local = true;
  options_.patience.limit = std::chrono::hours(1);
  fs::remove(step(90) / "manifest.json");
  const auto after = restart(options_);
  expect_at(after, 100, "local");
  EXPECT_THAT(after[0].from.note, HasSubstr("step-00000090 cannot be read now"));
  run_->save(200);
  fs::remove(step(200) / "manifest.json");
  options_.patience.limit = {};
  expect_failure(Exit::transient, {"step-00000200", "manifest.json"});
}

TEST_F(Unreadable, WhatTheRecordNamesHasToBeThere) {
  options_.order.durable = std::vector<std::int64_t>{120, 90};
  expect_failure(Exit::transient, {"step-00000120", "by the record of the run it is durable"});
  options_.order.durable = std::vector<std::int64_t>{90, 80};
  expect_at(restart(options_), 90, "shared");
  run_->flip_shard(90, 2, 5);  // proven damaged: then the one before it, which is not there
  expect_failure(Exit::transient, {"step-00000080"});
  options_.order.trusted_step = 70;  // nobody wants what is newer than this
  options_.order.durable = std::vector<std::int64_t>{};
  for (const RankAfter& rank : restart(options_)) EXPECT_TRUE(rank.from.fresh) << rank.from.note;
}

TEST_F(Unreadable, ARunWithoutALeaderKeepsItsOwnRecord) {
  const fs::path record = run_->dir().durable();
  checkpoint::record_steps(record, 1, std::vector<std::int64_t>{80, 90}, {});
  checkpoint::record_steps(record, 1, {}, std::vector<std::int64_t>{80});
  EXPECT_THAT(checkpoint::recorded_steps(record), ::testing::ElementsAre(90));
  expect_at(restart(options_), 90, "shared");
  fs::remove_all(step(90));
  expect_failure(Exit::transient, {"step-00000090"});
  options_.order.resume = "none";
  expect_failure(Exit::usage, {"already holds a run up to step 90"});
  options_.order.resume = "auto";
  checkpoint::testing::write_file(record, "{\"steps\":");
  expect_failure(Exit::no_requeue, {"durable.json"});
  fs::remove(record);
  for (const RankAfter& rank : restart(options_)) EXPECT_TRUE(rank.from.fresh);
}

TEST_F(Unreadable, WhenAllAreDamagedSomebodyHasToSayHowToGoOn) {
  run_->save(100);
  run_->flip_shard(100, 1, 5);
  fs::resize_file(step(90) / "shard-00003.h5", 50);
  expect_failure(Exit::no_requeue,
                 {"no checkpoint", "of step 100", "shard-00003.h5 has 50 bytes", "run.resume"});
  options_.order.restarted = true;  // the run's beginning
  options_.order.resume = step(90).string();
  expect_failure(Exit::no_requeue, {"no checkpoint"});
}

}  // namespace
}  // namespace holdfast::train

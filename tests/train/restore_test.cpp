// Restores one by one: what is repaired, what is read, what is left as it was. See disruptions_test.cpp for
// all that can happen together.
#include "src/train/restore.hpp"

#include <gmock/gmock.h>

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
      for (const std::int64_t step : {99, 100}) run_->snapshot(home(rank), rank, false, slot_of(step), step);
    network_.emplace(run_->world());
  }
  int home(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  static int slot_of(std::int64_t step) { return static_cast<int>(step % 2); }
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
    EXPECT_EQ(rank.slot, slot_of(100));
    EXPECT_TRUE(rank.sealed);
    EXPECT_EQ(rank.from.note, "");
    EXPECT_EQ(rank.from.bytes_received, 0);
    EXPECT_EQ(rank.from.bytes_read, 0);
    EXPECT_EQ(rank.from.network, "") << "nothing was sent, so nothing was opened";
  }
}

TEST_F(Restoring, ADamagedPieceComesFromTheReplicaAndNothingElse) {
  begin({});
  run_->flip(0, 1, false, slot_of(100), 4, 77);
  const auto after = restart();
  expect_at(after, 100, "peer");
  const RestoredFrom& from = after[0].from;
  EXPECT_EQ(from.pieces[static_cast<int>(Level::peer)], 1);
  EXPECT_THAT(from.note, HasSubstr("rank 1's piece 4 of step 100 is damaged at the level local"));
  EXPECT_LT(from.bytes_received, run_->state_bytes() / 4);
  EXPECT_EQ(after[1].slot, slot_of(100)) << "repaired in its place";
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
  options.order.rollback = true, options.order.restarted = true;
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
  fs::remove_all(run_->dir().checkpoints());
  node_of_ = {5, 5, 6, 6};
  for (const RankAfter& rank : restart()) {
    EXPECT_TRUE(rank.from.fresh);
    EXPECT_EQ(rank.from.level, "fresh");
    EXPECT_EQ(rank.from.note, "");
  }
}

}  // namespace
}  // namespace holdfast::train

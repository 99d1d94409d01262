// The local level beside an optimizer, and what of it belongs to which run.
#include "src/train/local/local_level.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/digest.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "src/control/secret.hpp"
#include "src/train/common/background.hpp"
#include "src/train/local/snapshots.hpp"
#include "src/train/state/state_views.hpp"

namespace holdfast::train {
namespace {

using checkpoint::StateFolder;

config::ModelShape micro() {
  config::ModelShape shape;
  shape.name = "micro";
  shape.vocabulary = 128;
  shape.width = 32;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.ffn = 88;
  shape.max_sequence = 64;
  return shape;
}

shard::Mesh mesh(config::Strategy strategy, int group, int world, int rank = 0) {
  return shard::mesh_of(strategy, group, 1, world, rank);
}

LocalRun some_run(const config::RunConfig& config = {}, const std::string& numerics = "numerics") {
  return local_run_of(config, micro(), mesh(config::Strategy::full_shard, 0, 3), numerics, "data");
}

TEST(LocalIdentity, IsTheSameFromEveryRankAndOfEachRankItsOwn) {
  const LocalRun run = some_run();
  LocalRun elsewhere = run;
  elsewhere.mesh.rank = 2;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(local_identity_of(run, rank), local_identity_of(elsewhere, rank));
    EXPECT_EQ(local_identity_of(run, rank).rank, rank);
    for (int other = 0; other < rank; ++other)
      EXPECT_NE(local_identity_of(run, rank).layout, local_identity_of(run, other).layout);
  }
  // Replicas hold the same, and read each other's files: only the rank is another.
  const LocalRun replicas =
      local_run_of({}, micro(), mesh(config::Strategy::hybrid_shard, 2, 4), "numerics", "data");
  EXPECT_EQ(local_identity_of(replicas, 0).layout, local_identity_of(replicas, 2).layout);
  EXPECT_NE(local_identity_of(replicas, 0).layout, local_identity_of(replicas, 1).layout);
}

TEST(LocalIdentity, FollowsFromEverySettingThatDecidesBitsAndFromNoOther) {
  const auto hash = [](auto change) {
    config::RunConfig config;
    change(config);
    return some_run(config).hash;
  };
  const std::uint64_t plain = some_run().hash;
  EXPECT_EQ(hash([](auto& c) { c.checkpoint.every = 7; }), plain);
  EXPECT_EQ(hash([](auto& c) { c.run.resume = "none"; }), plain);
  EXPECT_EQ(hash([](auto& c) { c.shard.prefetch_forward = 3; }), plain);
  EXPECT_EQ(hash([](auto& c) { c.train.activation_checkpointing = config::ActivationCheckpointing::full; }),
            plain);
  EXPECT_NE(hash([](auto& c) { c.train.seed = 7; }), plain);
  EXPECT_NE(hash([](auto& c) { c.train.steps = 7; }), plain) << "the learning rate may depend on it";
  EXPECT_NE(hash([](auto& c) { c.optim.lr = 7; }), plain);
  EXPECT_NE(hash([](auto& c) { c.guard.window = 7; }), plain);
  EXPECT_NE(some_run({}, "other numerics").hash, plain);
  EXPECT_EQ(some_run({}, "numerics").hash, plain);
}

TEST(BufferShape, HasRoomForEveryPieceAndNoneTwice) {
  for (const auto moments : {config::Precision::fp32, config::Precision::bf16})
    for (const auto& [strategy, group] : {std::pair{config::Strategy::full_shard, 0},
                                          {config::Strategy::hfsdp, 2},
                                          {config::Strategy::no_shard, 0}}) {
      config::RunConfig config;
      config.precision.moments = moments;
      const LocalRun run = local_run_of(config, micro(), mesh(strategy, group, 4), "numerics", "data");
      for (int rank = 0; rank < 4; ++rank) {
        std::vector<std::byte> buffer(buffer_shape_of(run, rank).bytes, std::byte{0});
        const checkpoint::State view = buffer_view_of(run, rank, buffer.data());
        std::int64_t bytes = 0;
        for (const checkpoint::PieceView& piece : view.pieces) {
          const std::int64_t n = checkpoint::bytes_of(piece.span(), view.tensors);
          auto* data = static_cast<std::byte*>(piece.data);
          ASSERT_GE(data, buffer.data());
          ASSERT_LE(data + n, buffer.data() + buffer.size());
          for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(std::exchange(data[i], std::byte{1}), std::byte{0});
          bytes += n;
        }
        EXPECT_GT(bytes, 0);
      }
    }
}

TEST(Background, ThrowsWhereItIsWaitedFor) {
  Background background;
  EXPECT_EQ(background.join() < 1, true);
  int done = 0;
  background.begin([&] { ++done; });
  background.join();
  EXPECT_EQ(done, 1);
  background.begin([] { throw Error(Exit::runtime, "it went wrong"); });
  EXPECT_THROW(background.join(), Error);
  background.begin([&] { ++done; });
  background.join();
  EXPECT_EQ(done, 2);
}

// ---- a level of its own, with values for an optimizer

class HostLevel : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("holdfast-local-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    start();
  }
  void TearDown() override {
    level_.reset();
    std::filesystem::remove_all(folder_);
  }
  void start(int buffers = 2) {
    level_.reset();
    StateFolder file(folder_ / "state" / "rank-00000", local_identity_of(run_, 0),
                     buffer_shape_of(run_, 0).bytes, buffers, false, run_.record_bytes);
    level_ = make_host_snapshots(
        {run_, 0, std::move(file), {}, 1, [this](std::span<std::byte> buffer) { live_ = buffer; }});
  }
  /// Fills a buffer with what step `step` would leave.
  void write(std::span<std::byte> buffer, std::int64_t step) const {
    const checkpoint::State view = buffer_view_of(run_, 0, buffer.data());
    for (const checkpoint::PieceView& piece : view.pieces)
      std::memset(piece.data, static_cast<int>(step), checkpoint::bytes_of(piece.span(), view.tensors));
  }
  /// Returns the buffer that was written.
  std::span<std::byte> update(std::int64_t step) {
    const auto next = level_->next();
    write(next.empty() ? live_ : next, step);
    if (!next.empty()) level_->moved();
    return live_;
  }
  void snapshot(std::int64_t step) { level_->begin({step, 0, 0}), level_->join(); }
  int buffer_of(std::int64_t step) {
    for (int buffer = 0; buffer < level_->file().buffers(); ++buffer)
      if (const auto what = level_->file().sealed(buffer); what && what->point.step == step) return buffer;
    return -1;
  }

  const LocalRun run_ = some_run();
  std::filesystem::path folder_;
  std::unique_ptr<Snapshots> level_;
  std::span<std::byte> live_;
};

TEST_F(HostLevel, SnapshotsTakeTurnsAndHaveTheirDigests) {
  write(live_, 0);
  for (std::int64_t step = 1; step <= 4; ++step) {
    update(step);
    EXPECT_EQ(buffer_of(step), -1) << "not before it is sealed";
    snapshot(step);
    ASSERT_NE(buffer_of(step), -1);
    if (step == 1) continue;
    EXPECT_NE(buffer_of(step - 1), -1) << "the one before is still whole";
  }
  for (int buffer : {0, 1}) {
    const auto what = level_->file().sealed(buffer);
    ASSERT_TRUE(what);
    EXPECT_EQ(what->digests, checkpoint::piece_digests(level_->view(buffer)));
    EXPECT_EQ(what->digests.size(), level_->view(buffer).pieces.size());
  }
}

TEST_F(HostLevel, ChangesInPlaceBetweenSnapshots) {
  update(1), snapshot(1);
  const auto second = update(2).data();
  EXPECT_EQ(update(3).data(), second);
  EXPECT_NE(buffer_of(1), -1);
  snapshot(3);
  EXPECT_NE(update(4).data(), second);
  EXPECT_NE(buffer_of(3), -1);
}

TEST_F(HostLevel, TheNextProcessAdoptsASnapshotWithoutCopyingIt) {
  update(1), snapshot(1);
  update(2), snapshot(2);
  update(3);  // unfinished
  start();
  ASSERT_NE(buffer_of(2), -1);
  EXPECT_EQ(buffer_of(1), -1);
  const int buffer = buffer_of(2);
  level_->adopt(buffer);
  EXPECT_EQ(live_.data(), level_->file().buffer(buffer).data());
  EXPECT_EQ(live_.front(), std::byte{2});
  snapshot(2);  // sealed as it was found
  EXPECT_NE(update(3).data(), level_->file().buffer(buffer).data());
  EXPECT_NE(buffer_of(2), -1) << "until step 3 is a snapshot, this is the newest";
}

TEST_F(HostLevel, WhatComesFromElsewhereGoesToASpareBuffer) {
  update(1), snapshot(1);
  update(2), snapshot(2);
  const std::array needed = {buffer_of(2)};
  const int spare = level_->spare_buffer(needed);
  EXPECT_NE(spare, needed[0]);
  EXPECT_EQ(buffer_of(1), -1);
  write(level_->file().buffer(spare), 7);
  level_->adopt(spare);
  EXPECT_EQ(live_.front(), std::byte{7});
  EXPECT_EQ(update(8).data(), level_->file().buffer(spare).data()) << "it is no snapshot";
  snapshot(8);
  EXPECT_NE(buffer_of(8), -1);
  EXPECT_NE(buffer_of(2), -1);
}

TEST_F(HostLevel, InitialWeightsAreNotTakenForTheSnapshotThatLayThere) {
  update(1), snapshot(1);
  level_->invalidate();
  EXPECT_EQ(buffer_of(1), -1);
  const auto* before = live_.data();
  EXPECT_EQ(update(1).data(), before);
}

TEST_F(HostLevel, CallsTheHookAfterTheSealAndKeepsWhatItSays) {
  start(3);
  std::vector<std::int64_t> copied;
  level_->after_seal([&](int buffer, const checkpoint::Sealed& what) {
    EXPECT_EQ(buffer_of(what.point.step), buffer);
    if (what.point.step % 3 != 0) return;
    copied.push_back(what.point.step);
    level_->keep(buffer);
  });
  for (std::int64_t step = 1; step <= 8; ++step) {
    update(step);
    EXPECT_TRUE(copied.empty() || buffer_of(copied.back()) >= 0) << step;
    snapshot(step);
  }
  EXPECT_EQ(copied, (std::vector<std::int64_t>{3, 6}));
  level_->after_seal(
      [](int, const checkpoint::Sealed&) { throw Error(Exit::runtime, "the partner is gone"); });
  update(9);
  EXPECT_THROW(snapshot(9), Error);
  EXPECT_NE(buffer_of(9), -1) << "sealed all the same";
}

// ---- which folder, and what counts

class OpenStateFolder : public HostLevel {
 protected:
  train::Setup setup(std::optional<RankEnv> agent, const std::string& local) const {
    train::Setup s;
    s.config.checkpoint.local = local;
    s.dir = {folder_ / "run"};
    s.place.world = 3;
    s.place.agent = agent;
    return s;
  }
  static RankEnv attempt(int n) {
    RankEnv place;
    place.attempt = n;
    return place;
  }
};

TEST_F(OpenStateFolder, AgentsHaveItInMemoryAndBareRunsWhereTheyAreTold) {
  EXPECT_EQ(local_folder_of(setup(std::nullopt, "auto")), std::nullopt);
  RankEnv told = attempt(1);
  EXPECT_EQ(local_folder_of(setup(told, "auto")), std::nullopt);
  told.local_level = "/dev/shm/of-the-agent";
  EXPECT_EQ(local_folder_of(setup(told, "auto")), told.local_level);
  const train::Setup bare = setup(std::nullopt, folder_);
  std::filesystem::create_directories(bare.dir.path);
  control::make_secret(bare.dir.secret());
  const auto made = local_folder_of(bare);
  ASSERT_TRUE(made && files::is_private_folder(*made));
  EXPECT_EQ(made->parent_path(), folder_);
  EXPECT_EQ(local_folder_of(bare), made) << "found again";
  remove_local_folder(bare);
  EXPECT_FALSE(std::filesystem::exists(*made));
}

TEST_F(OpenStateFolder, SnapshotsOfAnOlderFormatGiveTheirMemoryBack) {
  const auto old = folder_ / "local" / "rank-00000.own", copy = folder_ / "local" / "rank-00007.copy",
             other = folder_ / "local" / "run.copy";
  files::make_private_folder(folder_ / "local");
  for (const auto& file : {old, copy, other}) std::ofstream(file) << "HFLOCAL";
  open_state_folder(setup(attempt(2), "auto"), run_, folder_ / "local");
  EXPECT_FALSE(std::filesystem::exists(old) || std::filesystem::exists(copy));
  EXPECT_TRUE(std::filesystem::exists(other)) << "it has another name";
}

TEST_F(OpenStateFolder, NothingFromBeforeTheRunBeganCounts) {
  const auto left_over_counts = [&](const train::Setup& s) {
    std::filesystem::remove_all(folder_ / "local");
    train::Setup before = s;
    before.place.agent = attempt(2);
    open_state_folder(before, run_, folder_ / "local").seal(0, {{5, 0, 0}, {}});
    return open_state_folder(s, run_, folder_ / "local").sealed(0).has_value();
  };
  EXPECT_FALSE(left_over_counts(setup(attempt(1), "auto")));
  EXPECT_TRUE(left_over_counts(setup(attempt(2), "auto")));
  train::Setup from_path = setup(attempt(2), "auto");
  from_path.config.run.resume = "/a/checkpoint";
  EXPECT_TRUE(left_over_counts(from_path)) << "the first attempt began there, this one goes on";
  train::Setup bare = setup(std::nullopt, "/scratch");
  EXPECT_FALSE(left_over_counts(bare));
  std::filesystem::create_directories(bare.dir.path);
  std::ofstream(bare.dir.metrics()) << "{}\n";
  EXPECT_TRUE(left_over_counts(bare));
  bare.config.run.resume = "/a/checkpoint";
  EXPECT_FALSE(left_over_counts(bare));
}

}  // namespace
}  // namespace holdfast::train

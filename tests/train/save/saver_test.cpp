// Saves beside training: what happens to them when writers are slow, fail, or when the run ends.
#include "src/train/save/saver.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/comm/solo_communicator.hpp"
#include "src/train/save/bare_votes.hpp"
#include "src/train/state/piece_index.hpp"
#include "src/train/state/state_digest.hpp"
#include "src/train/state/state_views.hpp"
#include "tests/support/held_removals.hpp"

namespace holdfast::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::removals;

constexpr std::chrono::seconds patience(20);  // for what another thread does; nothing here is that slow

/// What may happen only after somebody said so.
class Gate {
 public:
  void open(int times = 1) {
    const std::scoped_lock lock(mutex_);
    open_ += times;
    changed_.notify_all();
  }
  /// False when nobody opened it in time.
  bool pass() {
    std::unique_lock lock(mutex_);
    const bool opened = changed_.wait_for(lock, patience, [this] { return open_ > 0; });
    open_ -= opened ? 1 : 0;
    return opened;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_ = 0;
};

struct FakeLink : control::RankLink {
  bool supervised() const override { return is_supervised; }
  void vote(std::int64_t step, bool ok, const std::string& payload, double stall_s) override {
    votes.push_back({step, ok, payload, stall_s});
  }
  bool wait_commit(std::int64_t step, const Deadline&) override { return step == durable_step; }
  struct Vote {
    std::int64_t step;
    bool ok;
    std::string payload;
    double stall_s;
  };
  bool is_supervised = true;
  std::vector<Vote> votes;  // the saver's thread's; read after wait_durable()
  std::int64_t durable_step = -1;
};

/// A state in two snapshot buffers, and an optimizer that fills it with a number.
class FakeState {
 public:
  Snapshots& snapshots() { return *snapshots_; }
  const LocalRun& run() const { return run_; }
  void update(int value) {
    snapshots_->join();
    const auto next = snapshots_->next();
    std::memset((next.empty() ? live_ : next).data(), value, live_.size());
    if (!next.empty()) snapshots_->moved();
  }
  std::span<std::byte> live() const { return live_; }

 private:
  config::ModelShape shape_;
  LocalRun run_ = local_run_of({}, shape_, shard::mesh_of(config::Strategy::no_shard, 0, 1, 1, 0), "", "");
  std::vector<std::byte> a_ = std::vector<std::byte>(as_size(buffer_shape_of(run_, 0).bytes)), b_ = a_;
  std::span<std::byte> live_;
  std::unique_ptr<Snapshots> snapshots_ =
      make_host_snapshots({run_, 0, {}, {a_, b_}, 1, [this](auto buffer) { live_ = buffer; }});
};

/// What a fake writer was given, and what it is to do.
struct Writes {
  std::vector<std::int64_t> steps;
  std::vector<int> values;          ///< with which every piece was filled
  std::vector<const void*> memory;  ///< of the first piece
  std::string fails;                ///< not "": every write does, with these words
  Gate* gate = nullptr;             ///< a write ends when it lets it
};

class SaverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_.checkpoints());
    state_.update(1);
  }
  void TearDown() override { std::filesystem::remove_all(dir_.path); }

  std::unique_ptr<Saver> saver(config::WhenBusy when_busy) {
    config::Checkpoint settings;
    settings.when_busy = when_busy;
    settings.commit_s = commit_s_;
    return std::make_unique<Saver>(
        dir_, settings, checkpoint::Generation{3, 7},
        Saver::Parts{[this](const auto& point, auto pieces) { return write(point, pieces); },
                     state_.snapshots().view(0), before_vote_, shortest_wait_},
        state_.snapshots(), world_, link_);
  }
  Written write(const checkpoint::RunPoint& point, std::span<const checkpoint::PieceView> pieces) {
    if (writes_.gate && !writes_.gate->pass()) throw Error(Exit::runtime, "nobody opened the gate");
    if (!writes_.fails.empty()) throw Error(Exit::runtime, writes_.fails);
    const auto value_of = [](const auto& piece) { return *static_cast<const unsigned char*>(piece.data); };
    writes_.steps.push_back(point.step);
    writes_.values.push_back(value_of(pieces.front()));
    writes_.memory.push_back(pieces.front().data);
    for (const auto& piece : pieces) EXPECT_EQ(value_of(piece), writes_.values.back());
    return {"shard of step " + std::to_string(point.step), {8192, 0.1, 0.01, true}};
  }
  /// A step, and its save.
  void save(Saver& saver, std::int64_t step, bool must = false) {
    state_.update(static_cast<int>(step));
    saver.begin({step, 100 * step, 10 * step}, must);
    saver.hand_over();
  }

  RunDir dir_{std::filesystem::temp_directory_path() / ("holdfast-saver-" + std::to_string(::getpid()))};
  comm::SoloCommunicator world_;
  FakeLink link_;
  FakeState state_;
  Gate gate_;
  Writes writes_;
  std::function<void()> before_vote_;
  Millis shortest_wait_{60'000};
  int commit_s_ = 120;
};

TEST_F(SaverTest, WhatIsWrittenIsTheStateOfTheMomentAndNotLaterOne) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::wait);
  save(*s, 1);
  for (int step = 11; step < 15; ++step) state_.update(step);  // while it is being written
  gate_.open();
  EXPECT_FALSE(s->wait_durable());
  state_.update(2);
  s->begin({2, 0, 0}, false);
  state_.update(20);  // before it is handed over
  gate_.open();
  link_.durable_step = 2;
  EXPECT_TRUE(s->wait_durable());
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2));
  EXPECT_THAT(writes_.values, ElementsAre(1, 2));
  ASSERT_EQ(link_.votes.size(), 2u);
  EXPECT_EQ(link_.votes[1].payload, "shard of step 2");
  EXPECT_EQ(s->why(), "");
}

TEST_F(SaverTest, TheVoteTellsHowLongTrainingWaited) {
  const auto s = saver(config::WhenBusy::skip);
  state_.update(1);
  s->begin({1, 0, 0}, false, 2.5);
  s->hand_over();
  link_.durable_step = 1;
  EXPECT_TRUE(s->wait_durable());
  ASSERT_EQ(link_.votes.size(), 1u);
  EXPECT_NEAR(link_.votes[0].stall_s, 2.5 + s->totals().stall_s, 1e-9);
}

/// A save costs no copy: the file is written from the memory that the optimizer left the state in.
TEST_F(SaverTest, WritesFromTheBufferThatHasTheState) {
  const auto s = saver(config::WhenBusy::wait);
  state_.update(5);
  const std::byte* const there = state_.live().data();
  s->begin({5, 0, 0}, false);
  s->wait_durable();
  EXPECT_THAT(writes_.memory, ElementsAre(there));
}

TEST_F(SaverTest, NothingIsWrittenBeforeItIsHandedOver) {
  const auto s = saver(config::WhenBusy::wait);
  state_.update(1);
  s->begin({1, 0, 0}, false);
  EXPECT_TRUE(s->busy());
  EXPECT_FALSE(state_.snapshots().wait_released(Deadline::in(std::chrono::milliseconds(20))));
  s->hand_over();
  EXPECT_TRUE(state_.snapshots().wait_released(Deadline::in(patience)));
}

TEST_F(SaverTest, TheVoteWaitsForTheRecordOfTheStepsBefore) {
  std::vector<std::pair<std::size_t, std::size_t>> seen;  // writes and votes
  before_vote_ = [&] { seen.emplace_back(writes_.steps.size(), link_.votes.size()); };
  const auto s = saver(config::WhenBusy::wait);
  save(*s, 1);
  s->wait_durable();
  EXPECT_THAT(seen, ElementsAre(std::pair(1u, 0u)));
  EXPECT_EQ(link_.votes.size(), 1u);
}

TEST_F(SaverTest, ABusySaverWaitsForTheSaveBefore) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::wait);
  EXPECT_FALSE(s->busy());
  save(*s, 1);
  EXPECT_TRUE(s->busy());
  std::thread writer_goes_on([&] { gate_.open(2); });
  save(*s, 2);  // returns only when the first is written
  writer_goes_on.join();
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2));
  EXPECT_FALSE(s->busy());
  EXPECT_EQ(s->totals().begun, 2);
  EXPECT_EQ(s->totals().skipped, 0);
}

TEST_F(SaverTest, ABusySaverSkipsWhereItMayAndCountsIt) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::skip);
  for (std::int64_t step = 1; step <= 5; ++step) save(*s, step);  // never waits: the gate is shut
  EXPECT_EQ(s->totals().begun, 1);
  EXPECT_EQ(s->totals().skipped, 4);
  std::thread writer_goes_on([&] { gate_.open(2); });
  save(*s, 6, true);  // the last one is never skipped
  writer_goes_on.join();
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 6));
  ASSERT_EQ(link_.votes.size(), 6u) << "the leader hears of the skipped ones, too, and waits for nobody";
  for (const auto& vote : link_.votes) EXPECT_EQ(vote.ok, vote.step == 1 || vote.step == 6) << vote.step;
  EXPECT_THAT(link_.votes[3].payload, HasSubstr("still being written"));
}

/// Storage that hangs: training waits once, for a stated time, and then saves again when the save before is
/// written.
TEST_F(SaverTest, StorageThatHangsCostsOneWaitAndTheSavesMeanwhile) {
  writes_.gate = &gate_;
  shortest_wait_ = Millis(30);
  const auto s = saver(config::WhenBusy::wait);
  for (std::int64_t step = 1; step <= 5; ++step) save(*s, step);  // the gate is shut
  EXPECT_EQ(s->totals().begun, 1);
  EXPECT_EQ(s->totals().skipped, 4);
  EXPECT_GE(s->totals().stall_s, 0.03);
  gate_.open();
  s->wait_durable();
  gate_.open(2);
  save(*s, 6);
  s->wait_durable();
  save(*s, 7);
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 6, 7));
  EXPECT_THAT(writes_.values, ElementsAre(1, 6, 7));
  EXPECT_EQ(s->totals().skipped, 4);
}

TEST_F(SaverTest, TheLastSaveOfARunWaitsForHungStorageNoLongerThanForACommit) {
  writes_.gate = &gate_;
  commit_s_ = 1;
  auto s = saver(config::WhenBusy::skip);
  save(*s, 1);
  save(*s, 2, true);
  EXPECT_EQ(s->totals().skipped, 1);
  EXPECT_FALSE(s->wait_durable());
  EXPECT_THAT(s->why(), HasSubstr("did not take it within 1 s"));
  gate_.open(2);
}

TEST_F(SaverTest, AFailedSaveCostsNothingButItself) {
  const auto s = saver(config::WhenBusy::wait);
  writes_.fails = "no space left";
  save(*s, 1);
  EXPECT_FALSE(s->wait_durable());
  EXPECT_THAT(s->why(), HasSubstr("no space left"));
  EXPECT_EQ(s->totals().failed, 1);
  writes_.fails = "";
  save(*s, 2);
  link_.durable_step = 2;
  EXPECT_TRUE(s->wait_durable());
  EXPECT_EQ(s->why(), "");
  EXPECT_THAT(writes_.steps, ElementsAre(2));
  ASSERT_EQ(link_.votes.size(), 2u);
  EXPECT_FALSE(link_.votes[0].ok);
  EXPECT_TRUE(link_.votes[1].ok);
}

TEST_F(SaverTest, EndingFinishesTheWriteThatGoesOnAndDropsTheRest) {
  writes_.gate = &gate_;
  auto s = saver(config::WhenBusy::skip);
  save(*s, 1), save(*s, 2);
  std::thread writer_goes_on([&] {
    std::this_thread::sleep_for(Millis(100));  // the end has begun, or the machine is very slow
    gate_.open();
  });
  s.reset();
  writer_goes_on.join();
  EXPECT_LE(writes_.steps.size(), 1u);
  EXPECT_LE(link_.votes.size(), 1u);
}

/// With the real writer.
class SavedState : public SaverTest {
 protected:
  std::unique_ptr<Saver> real_saver(const config::Checkpoint& settings = {}) {
    const auto writer = std::make_shared<checkpoint::ShardWriter>(
        dir_.checkpoints(), 0, checkpoint::Generation{3, 7}, views_.owned.tensors, views_.writers,
        checkpoint::Facts{"[model]", 1, "no_shard", "numerics", "data", 1, "hash"});
    return std::make_unique<Saver>(
        dir_, settings, checkpoint::Generation{3, 7},
        Saver::Parts{[writer](const auto& point, auto pieces) {
                       return Written{writer->write(point, pieces), writer->last_cost()};
                     },
                     views_.owned},
        state_.snapshots(), world_, link_);
  }
  void save_step(Saver& saver, std::int64_t step) {
    saver.begin({step, 1, 1}, false);
    saver.hand_over();
  }
  checkpoint::State owned() {
    return parts_in(buffer_view_of(state_.run(), 0, state_.live().data()), views_.owned.pieces);
  }

  config::ModelShape shape_;
  shard::Layout layout_ = shard::layout_of(shape_, state_.run().mesh);
  StateViews views_ = views_of(shape_, layout_, nullptr, nullptr, nullptr, state_.run().moments);
};

TEST_F(SavedState, VotesYesWithWhatTheLeaderNeedsToCommit) {
  const auto s = real_saver();
  const std::span floats(reinterpret_cast<float*>(state_.live().data()),
                         state_.live().size() / sizeof(float));
  std::iota(floats.begin(), floats.end(), 0.f);
  const auto digest = digest_state(owned(), world_).state;
  s->begin({40, 4000, 400}, false);
  s->hand_over();
  state_.update(3);
  s->wait_durable();
  ASSERT_EQ(link_.votes.size(), 1u);
  EXPECT_EQ(link_.votes[0].step, 40);
  ASSERT_TRUE(link_.votes[0].ok) << link_.votes[0].payload;
  checkpoint::Commit commit(dir_.checkpoints(), 40, {3, 7}, 1);  // as the leader does
  commit.add(0, true, link_.votes[0].payload);
  const auto manifest = checkpoint::read_manifest(commit.commit().path);
  EXPECT_EQ(manifest.state_digest, digest);
  EXPECT_EQ(manifest.point, (checkpoint::RunPoint{40, 4000, 400}));
  link_.durable_step = 40;
  EXPECT_TRUE(s->wait_durable());
}

TEST_F(SavedState, WithoutALeaderItIsCommittedHere) {
  link_.is_supervised = false;
  const auto s = real_saver();
  for (std::int64_t step : {10, 20}) save_step(*s, step);
  EXPECT_TRUE(s->wait_durable());
  EXPECT_THAT(checkpoint::committed_steps(dir_.checkpoints()), ElementsAre(20, 10));
  EXPECT_TRUE(checkpoint::newest_sound(dir_.checkpoints()));
}

/// However long the removal of old checkpoints takes, the new one is durable before.
TEST_F(SavedState, WithoutALeaderTheCommitOutcomeComesBeforeRetention) {
  link_.is_supervised = false;
  config::Checkpoint settings;
  settings.keep = 1;
  auto s = real_saver(settings);
  save_step(*s, 10);
  EXPECT_TRUE(s->wait_durable());
  removals.hold();
  save_step(*s, 20);
  auto durable = std::async(std::launch::async, [&] { return s->wait_durable(); });
  EXPECT_EQ(durable.wait_for(patience), std::future_status::ready) << "it waits for deletions";
  EXPECT_TRUE(removals.wait_for_one());
  save_step(*s, 30);
  auto next = std::async(std::launch::async, [&] { return s->wait_durable(); });
  EXPECT_EQ(next.wait_for(patience), std::future_status::ready) << "the next one waits for deletions";
  EXPECT_TRUE(checkpoint::newest_sound(dir_.checkpoints())->step == 30);
  removals.let_go();
  EXPECT_TRUE(durable.get());
  EXPECT_TRUE(next.get());
  s.reset();
  EXPECT_THAT(files::list(dir_.checkpoints()), ElementsAre("step-00000030"));
  EXPECT_THAT(checkpoint::recorded_steps(dir_.durable()), ElementsAre(30));
}

TEST_F(SavedState, AFolderThatCannotBeWrittenCostsTheCheckpoint) {
  for (const bool supervised : {true, false}) {
    link_.is_supervised = supervised;
    std::filesystem::remove_all(dir_.checkpoints());
    std::ofstream(dir_.checkpoints()) << "a file where a folder should be";
    const auto s = real_saver();
    save_step(*s, 40);
    EXPECT_FALSE(s->wait_durable());
    EXPECT_FALSE(s->why().empty());
    std::filesystem::remove_all(dir_.checkpoints());
    std::filesystem::create_directories(dir_.checkpoints());
    save_step(*s, 41);
    link_.durable_step = 41;
    EXPECT_TRUE(s->wait_durable()) << s->why();
  }
}

class BareVotes : public SaverTest {
 protected:
  std::filesystem::path folder_ = checkpoint::temporary_path(dir_.checkpoints(), 5, {0, 1});
  std::atomic<bool> ending_{false};
};

TEST_F(BareVotes, OnlyWholeVotesOfThisCheckpointCountAndNoFileIsLeft) {
  checkpoint::Commit commit(dir_.checkpoints(), 5, {0, 1}, 3);
  cast_vote(folder_, 1, false, "no space left");
  std::ofstream(folder_ / "vote-00002.tmp") << "yhalf";
  std::ofstream(folder_ / "vote-two") << "y";
  collect_votes(folder_, commit, Deadline::in(std::chrono::seconds(0)), ending_);
  EXPECT_TRUE(commit.failed());
  EXPECT_THAT(commit.why(), HasSubstr("rank 1: no space left"));
  EXPECT_THAT(commit.missing(), ElementsAre(0, 2));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "vote-00001"));
}

TEST_F(BareVotes, ARankThatIsGoneIsWaitedForUntilTheDeadlineAndNamed) {
  for (const bool ends : {false, true}) {
    ending_ = ends;
    checkpoint::Commit commit(dir_.checkpoints(), 5, {0, 1}, 2);
    commit.add(0, false, "");
    checkpoint::Commit waiting(dir_.checkpoints(), 5, {0, 1}, 2);
    collect_votes(folder_, waiting,
                  ends ? Deadline::in(patience) : Deadline::in(std::chrono::milliseconds(50)), ending_);
    EXPECT_FALSE(waiting.complete());
    EXPECT_THAT(waiting.missing(), ElementsAre(0, 1));
  }
}

TEST_F(BareVotes, WaitsForAVoteThatComesLater) {
  checkpoint::Commit commit(dir_.checkpoints(), 5, {0, 1}, 2);
  std::thread late([&] { cast_vote(folder_, 1, false, "late"); });
  collect_votes(folder_, commit, Deadline::in(patience), ending_);
  late.join();
  EXPECT_THAT(commit.why(), HasSubstr("late"));
}

}  // namespace
}  // namespace holdfast::train

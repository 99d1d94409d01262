// Saves beside training: what happens to them when writers are slow, fail, or when the run ends.
#include "src/train/save/saver.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/comm/solo_communicator.hpp"
#include "src/train/save/bare_votes.hpp"
#include "src/train/save/owned_pieces.hpp"
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
  void progress(std::int64_t, control::Phase) override {}
  void computed(double) override {}
  void restored(const control::Restored&) override {}
  void doubt(std::int64_t, const std::vector<int>&, const std::string&, const std::string&) override {}
  void vote(std::int64_t step, bool ok, const std::string& payload) override {
    votes.push_back({step, ok, payload});
  }
  bool wait_commit(std::int64_t step, const Deadline&) override { return step == durable_step; }
  std::optional<control::Drain> take_drain() override { return std::nullopt; }
  bool paused() const override { return false; }
  std::optional<control::Injection> take_injection() override { return std::nullopt; }
  void finished(const std::optional<control::FinalState>&) override {}
  void failed(int, const std::string&) noexcept override {}
  struct Vote {
    std::int64_t step;
    bool ok;
    std::string payload;
  };
  bool is_supervised = true;
  std::vector<Vote> votes;  // the saver's thread's; read after wait_durable()
  std::int64_t durable_step = -1;
};

/// A state of two pieces, and an image in which they lie apart.
struct FakeState {
  std::vector<float> a = {1, 2, 3}, b = {4, 5};
  checkpoint::State state() {
    return {{{"a", 1, 3, DType::fp32}, {"empty", 1, 0, DType::fp32}, {"b", 1, 2, DType::fp32}},
            {{0, 0, 3, a.data()}, {1, 0, 0, nullptr}, {2, 0, 2, b.data()}}};
  }
};

/// What a fake writer was given, and what it is to do.
struct Writes {
  std::vector<std::int64_t> steps;
  std::vector<std::vector<float>> values;  ///< of both pieces
  std::vector<const std::byte*> arenas;
  std::string fails;     ///< not "": every write does, with these words
  Gate* gate = nullptr;  ///< a write ends when it lets it
};

class FakeWriter final : public ImageWriter {
 public:
  explicit FakeWriter(Writes& writes) : writes_(writes) {}
  std::span<const std::int64_t> places() const override { return places_; }
  std::int64_t image_bytes() const override { return 8192; }
  std::string write(const checkpoint::RunPoint& point, std::span<std::byte> image) override {
    if (writes_.gate && !writes_.gate->pass()) throw Error(Exit::runtime, "nobody opened the gate");
    if (!writes_.fails.empty()) throw Error(Exit::runtime, writes_.fails);
    std::vector<float> values(5);
    std::memcpy(values.data(), image.data() + places_[0], 12);
    std::memcpy(values.data() + 3, image.data() + places_[1], 8);
    writes_.steps.push_back(point.step), writes_.values.push_back(values);
    writes_.arenas.push_back(image.data());
    return "image of step " + std::to_string(point.step);
  }
  checkpoint::WriteCost last_cost() const override { return {8192, 0.1, 0.01, true}; }

 private:
  Writes& writes_;
  std::vector<std::int64_t> places_ = {4096, 4160};
};

class SaverTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_.checkpoints()); }
  void TearDown() override { std::filesystem::remove_all(dir_.path); }

  std::unique_ptr<Saver> saver(config::WhenBusy when_busy, int arenas = 2,
                               std::unique_ptr<StateCopier> copier = make_host_copier()) {
    config::Checkpoint settings;
    settings.when_busy = when_busy;
    settings.commit_s = commit_s_;
    return std::make_unique<Saver>(dir_, settings, checkpoint::Generation{3, 7},
                                   Saver::Parts{std::make_unique<FakeWriter>(writes_), std::move(copier),
                                                arenas, before_vote_, shortest_wait_},
                                   *device_, world_, link_);
  }
  void save(Saver& saver, std::int64_t step, bool must = false) {
    saver.begin({step, 100 * step, 10 * step}, state_.state(), must);
    saver.join();
  }

  RunDir dir_{std::filesystem::temp_directory_path() / ("holdfast-saver-" + std::to_string(::getpid()))};
  std::unique_ptr<device::Device> device_ = device::make_cpu_device({.threads = 1});
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
  for (std::int64_t step = 1; step <= 2; ++step) {
    save(*s, step);
    state_.a[1] += 10;  // the next optimizer step, while it is being written
    state_.b[1] += 10;
  }
  gate_.open(2);
  link_.durable_step = 2;
  EXPECT_TRUE(s->wait_durable());
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2)) << "in their order";
  EXPECT_THAT(writes_.values[0], ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(writes_.values[1], ElementsAre(1, 12, 3, 4, 15));
  ASSERT_EQ(link_.votes.size(), 2u);
  EXPECT_EQ(link_.votes[1].payload, "image of step 2");
  EXPECT_EQ(s->why(), "");
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

/// Proved by who waits for whom: the copy goes on while the caller, who has returned from begin(), holds it
/// back and lets it go, without ever joining.
TEST_F(SaverTest, TheCopyRunsBesideTheCaller) {
  Gate started, go_on, copied;
  const auto s = saver(config::WhenBusy::wait, 2, make_host_copier([&](auto* to, auto* from, std::size_t n) {
                         started.open();
                         EXPECT_TRUE(go_on.pass()) << "begin() copies by itself";
                         copy_bytes(to, from, n);
                         copied.open();
                       }));
  s->begin({1, 1, 1}, state_.state(), false);
  EXPECT_TRUE(started.pass()) << "nothing is copied before join()";
  go_on.open(2);
  EXPECT_TRUE(copied.pass() && copied.pass()) << "what was begun is not finished before join()";
  s->join();
  s->wait_durable();
  EXPECT_THAT(writes_.values[0], ElementsAre(1, 2, 3, 4, 5));
}

/// A stream that does nothing until somebody waits for it, as a GPU that is busy.
class LazyStream final : public tensor::InlineStream, public tensor::Timeline {
 public:
  LazyStream(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  tensor::Event record() override { return {this, ++recorded_}; }
  void wait(const tensor::Event& event) override {
    work_.emplace_back([this, event] { log_.push_back(name_ + " waits"), event.wait(); });
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    work_.emplace_back([=, this] {
      log_.push_back(name_ + " copies");
      std::memcpy(to, from, bytes);
    });
  }
  bool passed(std::uint64_t) const override { return work_.empty(); }
  void wait(std::uint64_t) override {
    for (const auto& work : work_) work();
    work_.clear();
    log_.push_back(name_ + " is there");
  }

 private:
  std::string name_;
  std::vector<std::string>& log_;
  std::vector<std::function<void()>> work_;
  std::uint64_t recorded_ = 0;
};

struct LazyDevice final : device::Device {
  explicit LazyDevice(std::vector<std::string>& log) : compute_("compute", log), side_("side", log) {}
  std::string describe() const override { return "lazy"; }
  bool is_host() const override { return false; }
  kernels::Kernels& kernels() override { return host->kernels(); }
  kernels::Kernels& reduce_kernels() override { return host->reduce_kernels(); }
  tensor::Stream& compute() override { return compute_; }
  tensor::Stream& side() override { return side_; }
  std::span<std::byte> allocate(std::int64_t n, std::string_view what) override {
    return host->allocate(n, what);
  }
  std::span<std::byte> allocate_host(std::int64_t n, std::string_view what) override {
    return host->allocate_host(n, what);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> group) override {
    return group;
  }
  void replay(bool) override {}
  void take_notes(bool) override {}
  std::string choices(std::string_view) override { return ""; }
  void use_choices(std::string_view) override {}
  std::unique_ptr<device::Device> host = device::make_cpu_device({.threads = 1});
  LazyStream compute_, side_;
};

TEST_F(SaverTest, OnAGpuTheCopyIsBehindTheOptimizerAndNobodyWaitsBeforeJoin) {
  std::vector<std::string> log;
  LazyDevice gpu(log);
  std::vector<float> newer = {9, 8, 7}, out(3);
  gpu.compute().copy(state_.a.data(), newer.data(), 12);  // the optimizer step
  const auto copier = make_state_copier(gpu);
  const Copy list[] = {
      {reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(state_.a.data()), 12}};
  copier->begin(list);
  EXPECT_TRUE(log.empty()) << "begin() waits for the GPU";
  copier->join();
  EXPECT_THAT(
      log, ElementsAre("side waits", "compute copies", "compute is there", "side copies", "side is there"));
  EXPECT_THAT(out, ElementsAre(9, 8, 7));
}

TEST_F(SaverTest, CopiesAnyPlaceAndLengthAndNothingBeside) {
  std::vector<std::byte> from(1 << 12);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7 + 1);
  for (std::size_t to_at = 0; to_at < 130; to_at += 13)
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 1000, 2048}) {
      std::vector<std::byte> to(1 << 12, std::byte{0xee}), expected = to;
      std::copy_n(from.begin() + 5, bytes, expected.begin() + static_cast<std::ptrdiff_t>(to_at));
      copy_bytes(to.data() + to_at, from.data() + 5, bytes);
      EXPECT_EQ(to, expected) << bytes << " bytes to " << to_at;
    }
}

/// Lists longer and shorter than what a thread takes at a time, one after the other.
TEST_F(SaverTest, ManyListsInARowAreCopiedWhole) {
  const auto copier = make_host_copier();
  std::vector<std::byte> from(9 << 20), to(from.size());
  for (int round = 0; round < 20; ++round) {
    std::fill(from.begin(), from.end(), std::byte(round));
    const auto half = static_cast<std::int64_t>(from.size() / 2) + round;
    const std::vector<Copy> list = {
        {to.data(), from.data(), half},
        {to.data() + half, from.data() + half, static_cast<std::int64_t>(from.size()) - half}};
    copier->begin(list);
    EXPECT_GE(copier->join(), 0);
    EXPECT_EQ(to, from);
  }
  EXPECT_EQ(copier->join(), 0) << "nothing was begun";
}

TEST_F(SaverTest, ABusySaverWaitsForAnArenaAndMemoryIsBounded) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::wait);
  EXPECT_EQ(s->memory_bytes(), 2 * 8192);
  save(*s, 1), save(*s, 2);
  EXPECT_TRUE(s->busy());
  std::thread writer_goes_on([&] { gate_.open(3); });
  save(*s, 3);  // returns only when the first is written
  writer_goes_on.join();
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(std::set<const std::byte*>(writes_.arenas.begin(), writes_.arenas.end()).size(), 2u);
  EXPECT_EQ(s->totals().begun, 3);
  EXPECT_EQ(s->totals().skipped, 0);
}

/// For saves that are rare: memory is there from the copy to the end of the write.
TEST_F(SaverTest, ASaverWithoutArenasTakesMemoryForEachSave) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::wait, 0);
  EXPECT_EQ(s->memory_bytes(), 0);
  EXPECT_FALSE(s->busy());
  save(*s, 1);
  EXPECT_TRUE(s->busy());
  state_.a[0] = 8;
  std::thread writer_goes_on([&] { gate_.open(2); });
  save(*s, 2);  // returns only when the first is written
  writer_goes_on.join();
  s->wait_durable();
  EXPECT_FALSE(s->busy());
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2));
  EXPECT_THAT(writes_.values[0], ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(writes_.values[1], ElementsAre(8, 2, 3, 4, 5));
  EXPECT_EQ(s->memory_bytes(), 0);
}

TEST_F(SaverTest, ABusySaverSkipsWhereItMayAndCountsIt) {
  writes_.gate = &gate_;
  const auto s = saver(config::WhenBusy::skip);
  for (std::int64_t step = 1; step <= 5; ++step) save(*s, step);  // never waits: the gate is shut
  EXPECT_EQ(s->totals().begun, 2);
  EXPECT_EQ(s->totals().skipped, 3);
  std::thread writer_goes_on([&] { gate_.open(3); });
  save(*s, 6, true);  // the last one is never skipped
  writer_goes_on.join();
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2, 6));
  ASSERT_EQ(link_.votes.size(), 6u) << "the leader hears of the skipped ones, too, and waits for nobody";
  for (const auto& vote : link_.votes) EXPECT_EQ(vote.ok, vote.step < 3 || vote.step == 6) << vote.step;
  EXPECT_THAT(link_.votes[3].payload, HasSubstr("still being written"));
}

/// Storage that hangs: training waits once, for a stated time, and then saves again when an arena is free.
TEST_F(SaverTest, StorageThatHangsCostsOneWaitAndTheSavesMeanwhile) {
  writes_.gate = &gate_;
  shortest_wait_ = Millis(30);
  const auto s = saver(config::WhenBusy::wait);
  for (std::int64_t step = 1; step <= 5; ++step) save(*s, step);  // the gate is shut
  EXPECT_EQ(s->totals().begun, 2);
  EXPECT_EQ(s->totals().skipped, 3);
  EXPECT_GE(s->totals().stall_s, 0.03);
  gate_.open(2);
  s->wait_durable();
  gate_.open(2);
  save(*s, 6), save(*s, 7);
  s->wait_durable();
  EXPECT_THAT(writes_.steps, ElementsAre(1, 2, 6, 7));
  EXPECT_EQ(s->totals().skipped, 3);
}

TEST_F(SaverTest, TheLastSaveOfARunWaitsForHungStorageNoLongerThanForACommit) {
  writes_.gate = &gate_;
  commit_s_ = 1;
  auto s = saver(config::WhenBusy::skip, 1);
  save(*s, 1);
  save(*s, 2, true);
  EXPECT_EQ(s->totals().skipped, 1);
  EXPECT_FALSE(s->wait_durable());
  EXPECT_THAT(s->why(), HasSubstr("did not take it within 1 s"));
  gate_.open(2);
}

TEST_F(SaverTest, AFailedSaveCostsNothingButItself) {
  const auto s = saver(config::WhenBusy::wait, 1);
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
  auto s = saver(config::WhenBusy::wait);
  save(*s, 1), save(*s, 2);
  std::thread writer_goes_on([&] { gate_.open(); });
  s.reset();
  writer_goes_on.join();
  EXPECT_LE(writes_.steps.size(), 1u);
}

/// With the real writer.
class SavedState : public SaverTest {
 protected:
  std::unique_ptr<Saver> real_saver(const config::Checkpoint& settings = {}) {
    checkpoint::ShardWriter writer(dir_.checkpoints(), 0, {3, 7}, views_.owned.tensors, views_.writers,
                                   {"[model]", 1, "no_shard", "numerics", "data", 1, "hash"});
    return std::make_unique<Saver>(dir_, settings, checkpoint::Generation{3, 7},
                                   Saver::Parts{make_image_writer(std::move(writer)), make_host_copier(), 2},
                                   *device_, world_, link_);
  }
  const checkpoint::State& owned() {
    return owned_.in(
        {p_.data(), reinterpret_cast<std::byte*>(m_.data()), reinterpret_cast<std::byte*>(v_.data())});
  }

  config::ModelShape shape_;
  shard::Layout layout_ = shard::layout_of(shape_, shard::mesh_of(config::Strategy::no_shard, 0, 1, 1, 0));
  std::vector<float> p_ = std::vector<float>(layout_.arena_elements, 1.f), m_ = p_, v_ = p_;
  StateViews views_ = views_of(shape_, layout_, p_.data(), reinterpret_cast<std::byte*>(m_.data()),
                               reinterpret_cast<std::byte*>(v_.data()), DType::fp32);
  OwnedPieces owned_{views_.owned, layout_};
};

TEST_F(SavedState, VotesYesWithWhatTheLeaderNeedsToCommit) {
  const auto s = real_saver();
  std::iota(p_.begin(), p_.end(), 0.f), std::iota(v_.begin(), v_.end(), 7.f);
  s->begin({40, 4000, 400}, owned(), false);
  s->join();
  s->wait_durable();
  ASSERT_EQ(link_.votes.size(), 1u);
  EXPECT_EQ(link_.votes[0].step, 40);
  ASSERT_TRUE(link_.votes[0].ok) << link_.votes[0].payload;
  checkpoint::Commit commit(dir_.checkpoints(), 40, {3, 7}, 1);  // as the leader does
  commit.add(0, true, link_.votes[0].payload);
  const auto manifest = checkpoint::read_manifest(commit.commit().path);
  EXPECT_EQ(manifest.state_digest, digest_state(owned(), world_).state);
  EXPECT_EQ(manifest.point, (checkpoint::RunPoint{40, 4000, 400}));
  link_.durable_step = 40;
  EXPECT_TRUE(s->wait_durable());
}

TEST_F(SavedState, WithoutALeaderItIsCommittedHere) {
  link_.is_supervised = false;
  const auto s = real_saver();
  for (std::int64_t step : {10, 20}) s->begin({step, 1, 1}, owned(), false), s->join();
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
  s->begin({10, 1, 1}, owned(), false), s->join();
  EXPECT_TRUE(s->wait_durable());
  removals.hold();
  s->begin({20, 1, 1}, owned(), false), s->join();
  auto durable = std::async(std::launch::async, [&] { return s->wait_durable(); });
  EXPECT_EQ(durable.wait_for(patience), std::future_status::ready) << "it waits for deletions";
  EXPECT_TRUE(removals.wait_for_one());
  s->begin({30, 1, 1}, owned(), false), s->join();
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
    s->begin({40, 4000, 400}, owned(), false);
    s->join();
    EXPECT_FALSE(s->wait_durable());
    EXPECT_FALSE(s->why().empty());
    std::filesystem::remove_all(dir_.checkpoints());
    std::filesystem::create_directories(dir_.checkpoints());
    s->begin({41, 4000, 400}, owned(), false);
    s->join();
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

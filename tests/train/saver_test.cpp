// What a supervised rank tells its agent about a save.
#include "src/train/saver.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/commit.hpp"
#include "checkpoint/manifest.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::train {
namespace {

struct FakeLink : control::RankLink {
  bool supervised() const override { return true; }
  void progress(std::int64_t, control::Phase phase) override { phases.push_back(phase); }
  void restored(const control::Restored&) override {}
  void vote(std::int64_t step, bool ok, const std::string& payload) override {
    votes.push_back({step, ok, payload});
  }
  bool wait_verdict(std::int64_t step, const Deadline&) override { return step == durable_step; }
  void finished(const std::optional<control::FinalState>&) override {}
  void failed(int, const std::string&) noexcept override {}
  struct Vote {
    std::int64_t step;
    bool ok;
    std::string payload;
  };
  std::vector<Vote> votes;
  std::vector<control::Phase> phases;
  std::int64_t durable_step = -1;
};

class SaverTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_.checkpoints()); }
  void TearDown() override { std::filesystem::remove_all(dir_.path); }

  RunDir dir_{std::filesystem::temp_directory_path() / ("holdfast-saver-" + std::to_string(::getpid()))};
  config::ModelShape shape_;
  shard::Layout layout_ = shard::layout_of(shape_, shard::mesh_of(config::Strategy::no_shard, 0, 1, 1, 0));
  std::vector<float> p_ = std::vector<float>(static_cast<std::size_t>(layout_.arena_elements), 1.f), m_ = p_,
                     v_ = p_;
  StateViews views_ = views_of(shape_, layout_, p_.data(), reinterpret_cast<std::byte*>(m_.data()),
                               reinterpret_cast<std::byte*>(v_.data()), DType::fp32);
  comm::SoloCommunicator world_;
  FakeLink link_;
  Saver saver_{dir_,   {},     views_, {"[model]", 1, "no_shard", "numerics", "data", 1, "hash"},
               {3, 7}, world_, link_};
};

TEST_F(SaverTest, VotesYesWithWhatTheLeaderNeedsToCommit) {
  const StateDigest digest = saver_.save({40, 4000, 400});
  ASSERT_EQ(link_.votes.size(), 1u);
  EXPECT_EQ(link_.votes[0].step, 40);
  ASSERT_TRUE(link_.votes[0].ok) << link_.votes[0].payload;
  checkpoint::Commit commit(dir_.checkpoints(), 40, {3, 7}, 1);  // as the leader does
  commit.add(0, true, link_.votes[0].payload);
  const auto manifest = checkpoint::read_manifest(commit.commit(1).path);
  EXPECT_EQ(manifest.state_digest, digest.state);
  EXPECT_EQ(manifest.point, (checkpoint::RunPoint{40, 4000, 400}));
  link_.durable_step = 40;
  EXPECT_TRUE(saver_.wait_durable());
}

TEST_F(SaverTest, VotesNoWithTheReasonAndGoesOn) {
  std::filesystem::remove_all(dir_.checkpoints());
  std::ofstream(dir_.checkpoints()) << "a file where a folder should be";
  EXPECT_NO_THROW(saver_.save({40, 4000, 400}));
  ASSERT_EQ(link_.votes.size(), 1u);
  EXPECT_FALSE(link_.votes[0].ok);
  EXPECT_FALSE(link_.votes[0].payload.empty());
  EXPECT_FALSE(saver_.wait_durable());
}

}  // namespace
}  // namespace holdfast::train

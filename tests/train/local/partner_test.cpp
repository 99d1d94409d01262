// Who keeps whose copy, and that it is one.
#include "src/train/local/partner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/support/fake_exchange.hpp"
#include "tests/train/local/partner_world.hpp"

namespace holdfast::train {
namespace {

using config::Strategy;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

shard::Mesh mesh_of(Strategy strategy, int group, int ranks_per_node, int world) {
  return shard::mesh_of(strategy, group, ranks_per_node, world, 0);
}

TEST(PartnerPlan, OnlyWhatNoOtherNodeHoldsIsCopied) {
  EXPECT_TRUE(needs_partners(mesh_of(Strategy::full_shard, 0, 2, 8), 2));
  EXPECT_TRUE(needs_partners(mesh_of(Strategy::shard_grad_op, 0, 2, 8), 2));
  EXPECT_TRUE(needs_partners(mesh_of(Strategy::hfsdp, 0, 2, 8), 2)) << "each has its part of the optimizer";
  EXPECT_FALSE(needs_partners(mesh_of(Strategy::hybrid_shard, 0, 2, 8), 2));
  EXPECT_FALSE(needs_partners(mesh_of(Strategy::no_shard, 0, 2, 8), 2));
  EXPECT_TRUE(needs_partners(mesh_of(Strategy::hybrid_shard, 2, 4, 4), 4)) << "both replicas are on one node";
  EXPECT_TRUE(needs_partners(mesh_of(Strategy::hybrid_shard, 8, 4, 8), 4)) << "there is one replica";
  // Ranks 0 and 3, 1 and 4, 2 and 5 hold the same, on nodes of two.
  EXPECT_FALSE(needs_partners(mesh_of(Strategy::hybrid_shard, 3, 2, 6), 2));
}

TEST(PartnerPlan, NobodyIsAskedWhereThereIsNoOtherNode) {
  EXPECT_THAT(copy_destinations(mesh_of(Strategy::full_shard, 0, 4, 4), 4), IsEmpty());
  EXPECT_THAT(copy_destinations(mesh_of(Strategy::hybrid_shard, 0, 2, 8), 2), IsEmpty());
  EXPECT_THAT(copy_destinations(mesh_of(Strategy::full_shard, 0, 4, 6), 4), IsEmpty()) << "nodes of 4 and 2";
  EXPECT_EQ(partners_of(3, {}), Partners());
}

TEST(PartnerPlan, TheNextNodeAndTheSamePlaceThere) {
  EXPECT_THAT(copy_destinations(mesh_of(Strategy::full_shard, 0, 2, 6), 2), ElementsAre(2, 3, 4, 5, 0, 1));
  EXPECT_EQ(partners_of(2, copy_destinations(mesh_of(Strategy::full_shard, 0, 2, 6), 2)), (Partners{4, 0}));
}

TEST(PartnerPlan, EverybodyKeepsOneOfAnotherNodeAndOfAnotherUnitWhereThatCanBe) {
  std::uint64_t random = 1;
  for (int nodes = 2; nodes <= 40; ++nodes)
    for (int ranks_per_node : {1, 2, 8})
      for (int units = 1; units <= 4; ++units) {
        std::vector<int> unit, count(4);
        for (int node = 0; node < nodes; ++node) {
          random = mix64(random + 1);
          unit.push_back(static_cast<int>(random % static_cast<unsigned>(units)));
          ++count[unit.back()];
        }
        const int world = nodes * ranks_per_node;
        const auto destinations =
            copy_destinations(mesh_of(Strategy::full_shard, 0, ranks_per_node, world), ranks_per_node, unit);
        ASSERT_EQ(std::ssize(destinations), world);
        EXPECT_EQ(std::ssize(std::set<int>(destinations.begin(), destinations.end())), world);
        int same_scalable_unit = 0;
        for (int rank = 0; rank < world; ++rank) {
          const int destination = destinations[rank];
          EXPECT_NE(destination / ranks_per_node, rank / ranks_per_node);
          EXPECT_EQ(destination % ranks_per_node, rank % ranks_per_node);
          EXPECT_EQ(partners_of(destination, destinations).source, rank);
          same_scalable_unit += unit[destination / ranks_per_node] == unit[rank / ranks_per_node];
        }
        // Of a unit that is larger than all others together, so many must stay inside.
        const int largest = *std::max_element(count.begin(), count.end());
        EXPECT_EQ(same_scalable_unit, std::max(0, 2 * largest - nodes) * ranks_per_node) << nodes << " nodes";
      }
}

TEST(PartnerPlan, UnitsAreThoseOfThePlan) {
  const char* const plan = R"({"plan": {"nodes": [
    {"name": "a", "scalable_unit": "su2", "slot": 1}, {"name": "b", "scalable_unit": "su1", "slot": -1},
    {"name": "c", "scalable_unit": "su1", "slot": 0}, {"name": "d", "scalable_unit": "su2", "slot": 2}]}})";
  EXPECT_THAT(scalable_units_of_slots(plan, 3), ElementsAre(0, 1, 1));
  EXPECT_THAT(scalable_units_of_slots(plan, 4), IsEmpty()) << "nothing is said of one";
  EXPECT_THAT(scalable_units_of_slots(plan, 2), IsEmpty());
  EXPECT_THAT(scalable_units_of_slots("", 2), IsEmpty());
  EXPECT_THAT(scalable_units_of_slots(R"({"plan": 3})", 2), IsEmpty());
}

class PartnerCopiesTest : public ::testing::Test {
 protected:
  static constexpr int world = 4, ranks_per_node = 2;
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "hf-partner.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    scratch_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(scratch_); }
  PartnerRank rank(int number, int every, Millis limit = Millis(30'000)) {
    return PartnerRank(run_, number, ranks_per_node, scratch_, every, net_.of(number), limit);
  }
  void expect_copies(std::int64_t step) {
    for (int r = 0; r < world; ++r) expect_copy(run_, r, ranks_per_node, scratch_, step);
  }
  const LocalRun run_ = partner_run(world);
  std::filesystem::path scratch_;
  tests::FakeNetwork net_{world};
};

TEST_F(PartnerCopiesTest, TheLastTwoSnapshotsAreOnAnotherNodeToTheBit) {
  tests::FakeNetwork::each_rank(world, [&](int r) {
    PartnerRank me = rank(r, 1);
    for (int step = 1; step <= 5; ++step) me.step(step);
    EXPECT_EQ(me.copies().counts().copies, 5);
    EXPECT_EQ(me.copies().counts().refused, 0);
  });
  expect_copies(5);
  expect_copies(4);
  EXPECT_EQ(net_.moved(0, 1), 0) << "they share a node";
  EXPECT_GT(net_.moved(0, 2), 5 * buffer_shape_of(run_, 0).bytes);
}

TEST_F(PartnerCopiesTest, SnapshotsBetweenTwoCopiesStayAtHome) {
  tests::FakeNetwork::each_rank(world, [&](int r) {
    PartnerRank me = rank(r, 3);
    for (int step = 1; step <= 8; ++step) me.step(step);
    EXPECT_EQ(me.copies().counts().copies, 2);
  });
  expect_copies(6);
  expect_copies(3);
  // The snapshot that is whole on the other node is still there on this one.
  for (int r = 0; r < world; ++r) {
    const auto own = checkpoint::StateFolder::find(
        node_folder(scratch_, r, ranks_per_node) / snapshot::folder_name(r, false),
        local_identity_of(run_, r), buffer_shape_of(run_, r).bytes);
    ASSERT_TRUE(own);
    std::set<std::int64_t> steps;
    for (int buffer = 0; buffer < own->buffers(); ++buffer)
      if (const auto what = own->sealed(buffer)) steps.insert(what->point.step);
    EXPECT_THAT(steps, ElementsAre(6, 7, 8)) << "rank " << r;
  }
}

TEST_F(PartnerCopiesTest, OneThatCameDamagedIsNotKeptAndTheOneBeforeItIs) {
  tests::FakeNetwork::each_rank(world, [&](int r) {
    PartnerRank me = rank(r, 1);
    for (int step = 1; step <= 2; ++step) me.step(step);
    if (r == 1) net_.spoil(1, 1);
    me.step(3);
    EXPECT_EQ(me.copies().counts().copies, r == 1 ? 2 : 3);
    EXPECT_EQ(me.copies().counts().refused, r == 3 ? 1 : 0);
  });
  expect_copy(run_, 0, ranks_per_node, scratch_, 3);
  expect_copy(run_, 1, ranks_per_node, scratch_, 2);
}

TEST_F(PartnerCopiesTest, APartnerThatIsGoneIsAnErrorWhereTheSnapshotIsWaitedFor) {
  tests::FakeNetwork::each_rank(world, [&](int r) {
    PartnerRank me = rank(r, 1);
    for (int step = 1; step <= 2; ++step) me.step(step);
    if (r == 3) {
      net_.kill(3);
      return;
    }
    if (r != 1) return me.step(3);
    try {
      me.step(3);
      ADD_FAILURE() << "rank 3 keeps nothing any more";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    }
  });
  // The state of the dead is with its partner, as of the last step that all had.
  expect_copy(run_, 3, ranks_per_node, scratch_, 2);
  expect_copy(run_, 0, ranks_per_node, scratch_, 3);
}

TEST_F(PartnerCopiesTest, AStartLosesNoCopy) {
  tests::FakeNetwork::each_rank(world, [&](int r) {
    PartnerRank me = rank(r, 1);
    for (int step = 1; step <= 2; ++step) me.step(step);
  });
  tests::FakeNetwork::each_rank(world, [&](int r) { rank(r, 1); });
  expect_copies(1);
  expect_copies(2);
}

}  // namespace
}  // namespace holdfast::train

// The choice of a restore: source by source, piece by piece, and never two points in one state.
#include "src/snapshot/choice.hpp"

#include <gmock/gmock.h>

namespace holdfast::snapshot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PointId step_100{800, 100, 0, 7}, step_99{792, 99, 0, 7}, step_90{720, 90, 0, 7};

/// Two nodes of two ranks; ranks 0 and 2 hold the same, and so do 1 and 3: three pieces of 8 bytes each.
RestoreWorld two_replicas() { return {{0, 0, 2, 2}, {0, 1, 0, 1}, {{8, 8, 8}, {8, 8, 8}}}; }
/// Everybody holds something else.
RestoreWorld no_replicas() { return {{0, 0, 2, 2}, {0, 1, 2, 3}, {{8, 8}, {8, 8}, {8, 8}, {8, 8}}}; }

Offer own(int rank, PointId point, int buffer = 0, std::set<int> bad = {}) {
  return {rank, rank, false, buffer, point, 1, std::move(bad)};
}
Offer copy(int reader, int of, PointId point) { return {reader, of, true, 0, point, 1, {}}; }

TEST(RestoreChoice, EverybodysOwnFileIsTheFirstSource) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100), own(2, step_100), own(3, step_100),
                                     own(0, step_99, 1)};
  const auto d = choose(two_replicas(), offers, {});
  ASSERT_TRUE(d.found);
  EXPECT_EQ(d.point, step_100);
  EXPECT_TRUE(d.reasons.empty());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(d.all_own(rank));
    EXPECT_EQ(d.source(rank, 2), (PieceSource{Level::local, rank}));
  }
  EXPECT_EQ(d.slowest(), Level::local);
  EXPECT_FALSE(d.shared());
}

TEST(RestoreChoice, AReplicaGivesWhatIsMissing) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100), own(3, step_100)};
  const auto d = choose(two_replicas(), offers, {});
  EXPECT_EQ(d.point, step_100);
  for (int piece = 0; piece < 3; ++piece) EXPECT_EQ(d.source(2, piece), (PieceSource{Level::peer, 0}));
  EXPECT_EQ(d.slowest(), Level::peer);
}

TEST(RestoreChoice, ADamagedPieceIsTheOnlyOneThatComesFromElsewhere) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100), own(2, step_100, 0, {1}),
                                     own(3, step_100)};
  const auto d = choose(two_replicas(), offers, {});
  EXPECT_EQ(d.source(2, 0).level, Level::local);
  EXPECT_EQ(d.source(2, 1), (PieceSource{Level::peer, 0}));
  EXPECT_EQ(d.source(2, 2).level, Level::local);
}

TEST(RestoreChoice, APartnersCopyComesBeforeTheCheckpointOfTheSameStep) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100), own(3, step_100),
                                     copy(0, 2, step_100)};
  const std::vector<SharedOffer> shared = {{step_100, {}}};
  auto d = choose(no_replicas(), offers, shared);
  EXPECT_EQ(d.source(2, 0), (PieceSource{Level::partner, 3}));
  d = choose(no_replicas(), std::span(offers).first(3), shared);
  EXPECT_EQ(d.point, step_100);
  EXPECT_TRUE(d.all_own(0));
  EXPECT_EQ(d.source(2, 0), (PieceSource{Level::shared, 0}))
      << "the same step: the others stay with their own";
  EXPECT_EQ(d.shared(), 0);
}

TEST(RestoreChoice, AnOlderPointComesLastAndSaysWhy) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100),        own(3, step_100),
                                     own(0, step_99),  own(1, step_99),         own(2, step_99),
                                     own(3, step_99),  own(2, step_100, 1, {1})};
  const std::vector<SharedOffer> shared = {{step_90, {}}};
  const auto d = choose(no_replicas(), offers, shared);
  EXPECT_EQ(d.point, step_99);
  EXPECT_EQ(d.slowest(), Level::local);
  EXPECT_THAT(d.reasons,
              ElementsAre("step 100 is not whole: rank 2's piece 1 is damaged and no peer has it"));
}

TEST(RestoreChoice, ACheckpointWinsOnlyWhenItIsNewer) {
  const std::vector<Offer> offers = {own(0, step_99), own(1, step_99), own(2, step_99), own(3, step_99)};
  const std::vector<SharedOffer> newer = {{step_100, {}}}, older = {{step_90, {}}};
  EXPECT_EQ(choose(no_replicas(), offers, newer).point, step_100);
  EXPECT_EQ(choose(no_replicas(), offers, older).point, step_99);
  EXPECT_EQ(choose(no_replicas(), {}, older).point, step_90);
  EXPECT_FALSE(choose(no_replicas(), {}, {}).found);
}

TEST(RestoreChoice, ADamagedCheckpointIsRepairedByASnapshotOfItsVeryPoint) {
  const std::vector<Offer> offers = {own(0, step_100), own(1, step_100)};
  std::vector<SharedOffer> shared = {{step_100, {{0, 1}}}, {step_90, {}}};
  auto d = choose(no_replicas(), offers, shared);
  EXPECT_EQ(d.point, step_100);
  EXPECT_EQ(d.slowest(), Level::shared);
  shared[0].bad = {{2, 1}};
  d = choose(no_replicas(), offers, shared);
  EXPECT_EQ(d.point, step_90);
  EXPECT_THAT(d.reasons.at(0), HasSubstr("rank 2's piece 1 is damaged in the checkpoint and no peer has it"));
}

TEST(RestoreChoice, TheOrderIsThatOfTheRunNotOfTheStep) {
  // Rolled back from step 100 to 90, and on with other samples: the lower step is the later state.
  const PointId rolled_back{816, 91, 0, 7};
  const std::vector<Offer> offers = {own(0, step_100), own(0, rolled_back)};
  EXPECT_EQ(choose({{0}, {0}, {{8}}}, offers, {}).point, rolled_back);
}

TEST(RestoreChoice, PointsAreNeverJoined) {
  PointId other_memory = step_100;
  other_memory.memory = 8;
  const std::vector<Offer> offers = {own(0, step_100), own(1, other_memory)};
  EXPECT_FALSE(choose({{0, 1}, {0, 1}, {{8}, {8}}}, offers, {}).found);
}

TEST(RestoreChoice, TwoStatesOfOnePointAreNoState) {
  std::vector<Offer> offers = {own(0, step_100), own(1, step_100), own(2, step_100), own(3, step_100),
                               own(0, step_99),  own(1, step_99),  own(2, step_99),  own(3, step_99)};
  offers[2].seal = 2;
  const auto d = choose(two_replicas(), offers, {});
  EXPECT_EQ(d.point, step_99);
  EXPECT_THAT(d.reasons.at(0), HasSubstr("step 100 has two different states"));
}

TEST(RestoreChoice, NearSourcesFirstThenTheLeastBusy) {
  // Eight replicas of one piece list, two on a node; ranks 0 and 1 are new.
  RestoreWorld world{{0, 0, 2, 2, 4, 4, 6, 6}, std::vector<int>(8, 0), {{5, 5, 5, 5, 5, 5}}};
  std::vector<Offer> offers;
  for (int rank = 2; rank < 8; ++rank) offers.push_back(own(rank, step_100));
  auto d = choose(world, offers, {});
  std::map<int, int> pulls;
  for (int piece = 0; piece < 6; ++piece)
    ++pulls[d.source(0, piece).offer], ++pulls[d.source(1, piece).offer];
  EXPECT_EQ(pulls.size(), 6u);
  for (const auto& [offer, times] : pulls) EXPECT_EQ(times, 2) << offer;
  offers.push_back(own(1, step_100));
  d = choose(world, offers, {});
  EXPECT_TRUE(d.all_own(1));
  for (int piece = 0; piece < 6; ++piece)
    EXPECT_EQ(d.source(0, piece).offer, 6) << "the neighbour on the node";
}

TEST(RestoreChoice, AnOwnFileOnAnotherNodeIsAPeers) {
  // Rank 0 has moved to node 1; its file stayed on node 0, where rank 1 reads it.
  const std::vector<Offer> offers = {{1, 0, false, 0, step_100, 1, {}}, own(1, step_100)};
  const RestoreWorld world{{0, 1}, {0, 1}, {{8}, {8}}};
  EXPECT_EQ(choose(world, offers, {}).source(0, 0), (PieceSource{Level::peer, 0}));
  RestoreRules without;
  without.network = false;
  const auto d = choose(world, offers, {}, without);
  EXPECT_FALSE(d.found);
  EXPECT_THAT(d.reasons.at(0), HasSubstr("on another node, which could not send it"));
}

TEST(RestoreChoice, RefusedPointsAreSilent) {
  const std::vector<Offer> offers = {own(0, step_100), own(0, step_99)};
  RestoreRules rules;
  rules.refused = {step_100};
  const auto d = choose({{0}, {0}, {{8}}}, offers, {}, rules);
  EXPECT_EQ(d.point, step_99);
  EXPECT_TRUE(d.reasons.empty());
}

TEST(RestoreChoice, WhoHoldsNothingNeedsNothing) {
  const std::vector<Offer> offers = {own(0, step_100)};
  const auto d = choose({{0, 1}, {0, 1}, {{8}, {}}}, offers, {});
  EXPECT_EQ(d.point, step_100);
  EXPECT_EQ(d.slowest(), Level::local);
}

TEST(RestoreChoice, AThousandRanksAreDecidedFast) {
  RestoreWorld world;
  std::vector<Offer> offers;
  world.piece_bytes.assign(8, std::vector<std::int64_t>(900, 1 << 20));
  for (int rank = 0; rank < 1016; ++rank) {
    world.node_of.push_back(rank / 8 * 8), world.kind_of.push_back(rank % 8);
    if (rank >= 8) offers.push_back(own(rank, step_100)), offers.push_back(own(rank, step_99, 1));
  }
  const auto d = choose(world, offers, {});
  EXPECT_EQ(d.point, step_100);
  std::set<int> readers;
  for (int piece = 0; piece < 900; ++piece) readers.insert(offers[d.source(0, piece).offer].reader);
  EXPECT_EQ(readers.size(), 126u) << "all replicas give a part";
}

}  // namespace
}  // namespace holdfast::snapshot

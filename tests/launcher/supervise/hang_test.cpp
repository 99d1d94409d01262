// Which rank holds up a run in which no rank makes progress.
#include "launcher/supervise/hang.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace holdfast::launcher {
namespace {

using control::Phase;
using control::RankFlight;
using testing::HasSubstr;
using testing::StartsWith;

/// Its report: numbers of the last collective that was entered and ended in group 1, and in group 2.
RankFlight report(int rank, std::uint64_t started, std::uint64_t finished, std::uint64_t started_2 = 0,
                  std::uint64_t finished_2 = 0) {
  RankFlight out{rank, 1, 50, {}};
  for (const std::uint64_t key : {1, 2}) {
    flight::FlightGroup group;
    group.key = key;
    group.size = 8;
    group.started = group.queued = key == 1 ? started : started_2;
    group.finished = key == 1 ? finished : finished_2;
    if (group.started > 0) out.groups.push_back(group);
  }
  return out;
}

Culprit named(const std::vector<RankFlight>& flights, std::vector<StillRank> ranks = {}) {
  if (ranks.empty())
    for (const auto& f : flights) ranks.push_back({f.rank, 9, Phase::forward, 11});
  for (auto& rank : ranks)
    for (const auto& f : flights)
      if (f.rank == rank.rank) rank.flight = &f;
  return who_hangs(ranks, 10);
}

TEST(Hang, WithoutReportsTheOneThatIsBehindAndDoesNotWait) {
  EXPECT_EQ(named({}, {{0, 9, Phase::collective, 11}, {1, 9, Phase::data, 11}}).rank, 1);
  EXPECT_EQ(named({}, {{0, 9, Phase::data, 11}, {1, 8, Phase::collective, 11}}).rank, 1);
  EXPECT_EQ(named({}, {{0, 9, Phase::data, 11}, {1, 9, Phase::data, 11}}).rank, 0);
  EXPECT_EQ(named({}, {{0, 8, Phase::data, 4}, {1, 9, Phase::data, 11}}).rank, 1) << "0 moved a while ago";
  EXPECT_EQ(named({}, {{0, 9, Phase::data, 11}}).why, "");
}

TEST(Hang, ARankThatItsAgentHasNeverHeardIsSilent) {
  const auto culprit = named(
      {report(0, 5, 4), report(2, 4, 4)},
      {{0, 9, Phase::collective, 11}, {1, 9, Phase::forward, 6, nullptr, true}, {2, 9, Phase::forward, 11}});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_THAT(culprit.why, StartsWith("the process of rank 1 has not been heard for 6.0 s"));
  EXPECT_EQ(named({}, {{0, 9, Phase::forward, 11}, {1, 9, Phase::forward, 4, nullptr, true}}).rank, 0)
      << "not yet";
}

TEST(Hang, ReportsDecideAgainstPhases) {
  const auto culprit =
      named({report(0, 5, 4), report(1, 4, 4), report(2, 5, 4)},
            {{0, 8, Phase::data, 11}, {1, 9, Phase::collective, 6}, {2, 9, Phase::data, 11}});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_THAT(culprit.why, StartsWith("rank 1 has not entered"));
  EXPECT_THAT(culprit.why, HasSubstr("ranks 0, 2 wait"));
}

TEST(Hang, NobodyIsMissingByTheReports) {
  const auto culprit =
      named({report(0, 5, 4), report(1, 5, 4)}, {{0, 9, Phase::collective, 11}, {1, 9, Phase::data, 11}});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.why, "");
  EXPECT_EQ(named({RankFlight{0, 1, 0, {}}, RankFlight{1, 1, 0, {}}}).rank, 0) << "recorders are off";
}

/// Its record says that it waits: it was stopped in the collective in which the others wait.
TEST(Hang, ASilentProcessHasNoAlibi) {
  auto stopped = report(2, 5, 4, 7, 7);
  stopped.silent_ms = 8000;
  const auto culprit = named({report(0, 5, 4, 7, 7), report(1, 5, 4, 8, 7), stopped});
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_THAT(culprit.why, StartsWith("the process of rank 2 has not been heard for 8.0 s; rank 2 has not "));
  EXPECT_THAT(culprit.why, Not(HasSubstr("rank 0 has not")));
  stopped.silent_ms = 4900;  // less than half of the limit: a hiccup
  EXPECT_EQ(named({report(0, 5, 4, 7, 7), report(1, 5, 4, 8, 7), stopped}).rank, 0);
}

TEST(Hang, OfManyAFewAreTold) {
  std::vector<RankFlight> flights;
  for (int rank = 0; rank < 1000; ++rank) flights.push_back(report(rank, rank < 500 ? 4 : 5, 4));
  const auto culprit = named(flights);
  EXPECT_EQ(culprit.rank, 0);
  EXPECT_THAT(culprit.why,
              HasSubstr("ranks 500, 501, 502, 503, 504, 505, 506, 507 and 492 others wait; rank 1"));
  EXPECT_THAT(culprit.why, HasSubstr("; and 496 more"));
  EXPECT_LT(culprit.why.size(), 1000u);
}

}  // namespace
}  // namespace holdfast::launcher

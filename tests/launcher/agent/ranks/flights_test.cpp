// What an agent reports of its ranks' collectives when one of them makes no progress, and which files remain.
#include "launcher/agent/ranks/flights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using control::Phase;
using flight::Collective;
using flight::FlightRecorder;
using namespace std::chrono_literals;

class FlightsTest : public testing::Test {
 protected:
  /// A rank that has reported its progress.
  LocalRank& speaking(int rank, Clock::time_point at, int attempt = 2) {
    LocalRank& r = ranks_.at(rank, attempt);
    r.started = true;
    LocalRanks::take(r, {rank, attempt, 7, Phase::forward}, at);
    return r;
  }
  /// The next beat of every rank but `except`; no rank makes progress.
  void beat(Clock::time_point at, int except = -1) {
    for (auto& [number, rank] : ranks_)
      if (number != except && rank.heard) LocalRanks::take(rank, rank.progress, at);
  }
  std::vector<control::RankFlight> report(Clock::time_point at) { return flights_.report(ranks_, 2, at); }

  std::filesystem::path record(int attempt, int rank) const {
    return folder_.path / flight_record_file(attempt, rank);
  }

  control::test::Folder folder_;
  const Clock::time_point start_ = Clock::time_point{} + 1000s;
  LocalRanks ranks_;
  static config::Supervise limits() {
    config::Supervise limits;
    limits.step_s = 600;
    limits.hang_floor_s = 10;
    return limits;
  }
  Flights flights_{folder_.path, limits()};
};

TEST_F(FlightsTest, NothingWhileAllMoveThenAllOnceASecond) {
  FlightRecorder recorder(record(2, 5), 5, 8);
  const int place = recorder.join(7, "shard group 1", 4, 1);
  recorder.started(place,
                   recorder.queued(place, 7, "shard group 1", Collective::ordered_reduce_scatter, 1, 0, 0));
  speaking(4, start_), speaking(5, start_);
  EXPECT_TRUE(report(start_ + 5s).empty()) << "half of the limit is not more than half of it";
  beat(start_ + 5s, 4);
  LocalRanks::take(*ranks_.find(5, 2), {5, 2, 8, Phase::forward}, start_ + 5s);  // that one moves

  const auto said = report(start_ + 5001ms);
  ASSERT_EQ(said.size(), 2u) << "one that does not move is enough to tell of all";
  EXPECT_EQ(said[0].rank, 4);
  EXPECT_EQ(said[0].attempt, 2);
  EXPECT_EQ(said[0].silent_ms, 5001);
  EXPECT_TRUE(said[0].groups.empty()) << "it has no record";
  EXPECT_EQ(said[1].rank, 5);
  EXPECT_EQ(said[1].silent_ms, 1);
  ASSERT_EQ(said[1].groups.size(), 1u);
  EXPECT_EQ(said[1].groups[0].started, 1u);
  EXPECT_EQ(said[1].groups[0].operation, Collective::ordered_reduce_scatter);

  EXPECT_TRUE(report(start_ + 6000ms).empty()) << "a second has not passed";
  EXPECT_EQ(report(start_ + 6001ms).size(), 2u);
  LocalRanks::take(*ranks_.find(4, 2), {4, 2, 7, Phase::backward}, start_ + 7s);
  EXPECT_TRUE(report(start_ + 8s).empty()) << "it moves again";
}

TEST_F(FlightsTest, OnlyRanksThatTrainAndSpeak) {
  ranks_.at(0, 2).started = true;  // another program: says nothing, ever
  LocalRank& starting = ranks_.at(1, 2);
  starting.started = true;
  LocalRanks::take(starting, {1, 2, -1, Phase::starting}, start_);
  speaking(2, start_).ended = true;
  speaking(3, start_).finished = control::RankFinished{3, 2, {}};
  speaking(4, start_, 1);  // of the attempt before
  EXPECT_TRUE(report(start_ + 100s).empty());
  speaking(5, start_);
  const auto said = report(start_ + 100s);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].rank, 5);
}

TEST_F(FlightsTest, ADamagedOrForeignRecordIsNone) {
  speaking(5, start_), speaking(6, start_);
  FlightRecorder other(record(2, 5), 6, 8);  // another rank's, by what is in it
  other.join(7, "shard group 1", 4, 1);
  std::ofstream(record(2, 6)) << "no record";
  for (const auto& said : report(start_ + 6s)) EXPECT_TRUE(said.groups.empty()) << said.rank;
}

TEST_F(FlightsTest, RecordsOfOlderAttemptsAreRemovedAndNoOthers) {
  std::vector<std::filesystem::path> old, kept;
  for (const int rank : {0, 17}) {
    for (const int attempt : {0, 1, 2}) old.push_back(record(attempt, rank));
    for (const int attempt : {3, 11}) kept.push_back(record(attempt, rank));
  }
  kept.push_back(record(1, 0).string() + ".more");
  for (const auto* some : {&old, &kept})
    for (const auto& path : *some) std::ofstream(path) << "x";
  remove_flight_records(folder_.path, 3);
  for (const auto& path : old) EXPECT_FALSE(exists(path)) << path;
  for (const auto& path : kept) EXPECT_TRUE(exists(path)) << path;
  remove_flight_records(folder_.path, INT32_MAX);
  EXPECT_FALSE(exists(record(11, 17)));
  EXPECT_TRUE(exists(kept.back()));
}

}  // namespace
}  // namespace holdfast::launcher

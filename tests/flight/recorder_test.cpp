#include "src/flight/recorder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::flight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FlightRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "flight-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ / "rank0";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_, path_;
};

TEST_F(FlightRecorderTest, AReaderSeesWhereEveryCollectiveStands) {
  FlightRecorder recorder(path_, 3, 8);
  const int place = recorder.join(7, "shard group 0", 4, 3);
  const auto first = recorder.queued(place, 7, "shard group 0", Collective::all_gather, 1, 4096, 11);
  const auto second =
      recorder.queued(place, 7, "shard group 0", Collective::ordered_reduce_scatter, 2, 8192, 12);
  recorder.queued(place, 7, "shard group 0", Collective::all_gather, 3, 0, 13);
  recorder.started(place, first);
  recorder.finished(place, first, false);
  recorder.started(place, second);

  const auto record = read_flight_record(path_);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->rank, 3);
  EXPECT_EQ(record->world, 8);
  EXPECT_EQ(record->process, getpid());
  ASSERT_EQ(record->groups.size(), 1u);
  EXPECT_EQ(record->groups[0].key, 7u);
  EXPECT_STREQ(record->groups[0].name, "shard group 0");
  EXPECT_EQ(record->groups[0].queued, 3u);
  EXPECT_EQ(record->groups[0].started, 2u);
  EXPECT_EQ(record->groups[0].finished, 1u);
  ASSERT_EQ(record->entries.size(), 3u);
  EXPECT_EQ(record->entries[0].state, FlightState::finished);
  EXPECT_GE(record->entries[0].finished_ns, record->entries[0].started_ns);
  EXPECT_EQ(record->entries[1].state, FlightState::running);
  EXPECT_EQ(record->entries[1].bytes, 8192);
  EXPECT_EQ(record->entries[1].enqueued_ns, 12);
  EXPECT_EQ(record->entries[1].operation, Collective::ordered_reduce_scatter);
  EXPECT_EQ(record->entries[2].state, FlightState::queued);
  EXPECT_THAT(to_text(*record), HasSubstr("ordered reduce-scatter #2 of shard group 0, 8192 bytes: entered"));
}

TEST_F(FlightRecorderTest, KeepsTheNewest) {
  FlightRecorder recorder("", 0, 1);
  const int place = recorder.join(1, std::string(100, 'x'), 1, 0);
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    const auto ordinal = recorder.queued(place, 1, "x", Collective::barrier, number, 0, 0);
    recorder.started(place, ordinal);
    recorder.finished(place, ordinal, false);
  }
  const FlightRecord record = recorder.read();
  ASSERT_EQ(record.entries.size(), FlightRecorder::entries);
  EXPECT_EQ(record.entries.front().number, 1001 - FlightRecorder::entries);
  EXPECT_EQ(record.entries.back().number, 1000u);
  EXPECT_EQ(record.groups[0].finished, 1000u);
  EXPECT_EQ(std::strlen(record.groups[0].name), flight_name_bytes - 1);
  EXPECT_EQ(recorder.finished(), 1000u);
  EXPECT_EQ(recorder.finished(0)->number, 1u);
  EXPECT_EQ(recorder.finished(999)->number, 1000u);
  EXPECT_FALSE(recorder.finished(1000));
  recorder.leave(place);
  EXPECT_THAT(recorder.read().groups, IsEmpty());
}

TEST_F(FlightRecorderTest, ACollectiveThatOutlivesTheRingIsForgottenNotMistaken) {
  FlightRecorder recorder("", 0, 1);
  const auto slow = recorder.queued(-1, 1, "slow", Collective::all_gather, 1, 0, 0);
  for (std::uint64_t number = 1; number <= FlightRecorder::entries; ++number)
    recorder.queued(-1, 2, "fast", Collective::barrier, number, 0, 0);
  recorder.started(-1, slow);
  recorder.finished(-1, slow, false);
  for (const FlightEntry& entry : recorder.read().entries) EXPECT_STREQ(entry.name, "fast");
  EXPECT_EQ(recorder.finished(), 0u);
}

TEST_F(FlightRecorderTest, IsReadableAfterTheRankWasKilledInTheMiddleOfIt) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when an assertion leaves this test
    FlightRecorder recorder(path_, 0, 2);
    const int place = recorder.join(1, "the world", 2, 0);
    for (std::uint64_t number = 1;; ++number) {
      const auto ordinal = recorder.queued(place, 1, "the world", Collective::barrier, number, 0, 0);
      recorder.started(place, ordinal);
      recorder.finished(place, ordinal, false);
      if (number == 1000 && write(ready[1], "x", 1) != 1) _exit(1);
    }
  }
  char x = 0;
  ASSERT_EQ(read(ready[0], &x, 1), 1);
  std::uint64_t last = 0;
  for (int i = 0; i < 200; ++i) {  // while it writes
    const auto record = read_flight_record(path_);
    ASSERT_TRUE(record);
    for (const FlightEntry& entry : record->entries) {
      ASSERT_EQ(entry.ordinal, entry.number);
      ASSERT_STREQ(entry.name, "the world");
    }
    if (!record->entries.empty()) {
      ASSERT_GE(record->entries.back().number + 1, last) << "the newest may be open just now";
      last = record->entries.back().number;
    }
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  const auto record = read_flight_record(path_);
  ASSERT_TRUE(record);
  EXPECT_GE(record->entries.size(), FlightRecorder::entries - 1);  // one may have been open
  EXPECT_GE(record->entries.back().number, last);
}

TEST_F(FlightRecorderTest, TheFileGoesWithAGoodEndAndStaysAfterAFailure) {
  { FlightRecorder recorder(path_, 0, 1); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(folder_)) << "it is the agent's";
  files::create_exclusively(folder_ / "other", "");
  { FlightRecorder recorder(path_, 0, 1); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "other"));
  {
    FlightRecorder recorder(path_, 0, 1);
    const auto ordinal = recorder.queued(-1, 1, "g", Collective::barrier, 1, 0, 0);
    recorder.started(-1, ordinal);
    recorder.finished(-1, ordinal, true);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_EQ(read_flight_record(path_)->entries.at(0).state, FlightState::failed);
  { FlightRecorder recorder(path_, 0, 1); }  // a new attempt begins anew
  EXPECT_THROW(FlightRecorder(folder_ / "nowhere" / "x", 0, 1), Error);
}

TEST_F(FlightRecorderTest, ReadersBelieveNothing) {
  EXPECT_FALSE(read_flight_record(folder_ / "absent"));
  EXPECT_FALSE(read_flight_record(folder_));
  std::string good;
  {
    FlightRecorder recorder(path_, 0, 2);
    const int place = recorder.join(1, "the world", 2, 0);
    for (std::uint64_t number = 1; number <= 300; ++number)
      recorder.queued(place, 1, "the world", Collective::barrier, number, 0, 0);
    good = files::read_text(path_);
  }
  const auto put = [&](const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; };
  put(good.substr(0, good.size() - 1));
  EXPECT_FALSE(read_flight_record(path_));
  put("");
  EXPECT_FALSE(read_flight_record(path_));
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bad = good;
    for (int i = 0; i < 300; ++i) bad[24 + random() % (bad.size() - 24)] = static_cast<char>(random());
    put(bad);
    if (const auto record = read_flight_record(path_)) {
      for (const FlightEntry& entry : record->entries) {
        EXPECT_LE(entry.operation, Collective::barrier);
        EXPECT_LE(entry.state, FlightState::failed);
        EXPECT_LT(std::strlen(entry.name), flight_name_bytes);
      }
      to_text(*record);
      stuck_ranks({&*record, 1});
    }
  }
}

/// A record with one line per group: key, started, finished.
FlightRecord record_of(int rank, std::vector<std::array<std::uint64_t, 3>> groups) {
  FlightRecord record;
  record.rank = rank;
  record.world = 8;
  for (const auto& [key, started, finished] : groups) {
    FlightGroup group;
    group.key = key;
    group.queued = group.started = started;
    group.finished = finished;
    group.operation = Collective::all_gather;
    std::strcpy(group.name, key == 1 ? "the world" : "shard group 0");
    record.groups.push_back(group);
  }
  return record;
}

std::vector<int> ranks(const std::vector<StuckRank>& stuck) {
  std::vector<int> all;
  for (const StuckRank& one : stuck) all.push_back(one.rank);
  return all;
}

TEST(StuckRanks, TheOneThatHasNotComeIsNamed) {
  const FlightRecord records[] = {record_of(0, {{2, 812, 811}}), record_of(1, {{2, 812, 811}}),
                                  record_of(3, {{2, 811, 811}})};
  const auto stuck = stuck_ranks(records);
  ASSERT_THAT(ranks(stuck), ElementsAre(3));
  EXPECT_EQ(stuck[0].why,
            "rank 3 has not entered all-gather #812 of shard group 0, in which ranks 0, 1 wait");
}

TEST(StuckRanks, NobodyWaits) {
  const FlightRecord records[] = {record_of(0, {{2, 812, 812}}), record_of(1, {{2, 811, 811}})};
  EXPECT_THAT(stuck_ranks(records), IsEmpty());  // rank 0 does not wait: it is only ahead
  EXPECT_THAT(stuck_ranks({}), IsEmpty());
}

TEST(StuckRanks, WhoWaitsElsewhereIsAVictim) {
  // 2 and 3 wait in the world for 0, which waits in its shard group for 1.
  const FlightRecord records[] = {record_of(0, {{1, 4, 4}, {2, 10, 9}}), record_of(1, {{1, 4, 4}, {2, 9, 9}}),
                                  record_of(2, {{1, 5, 4}}), record_of(3, {{1, 5, 4}})};
  EXPECT_THAT(ranks(stuck_ranks(records)), ElementsAre(1));
}

TEST(StuckRanks, ACircleNamesAllInIt) {
  const FlightRecord records[] = {record_of(0, {{1, 5, 4}, {2, 9, 9}}),
                                  record_of(1, {{1, 4, 4}, {2, 10, 9}})};
  EXPECT_THAT(ranks(stuck_ranks(records)), ElementsAre(0, 1));
}

TEST(StuckRanks, AllInsideMeansThatNobodyIsMissing) {
  const FlightRecord records[] = {record_of(0, {{2, 5, 4}}), record_of(1, {{2, 5, 4}})};
  EXPECT_THAT(stuck_ranks(records), IsEmpty());
}

}  // namespace
}  // namespace holdfast::flight

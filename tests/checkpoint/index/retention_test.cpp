// Which checkpoints stay.
#include "checkpoint/index/retention.hpp"

#include <gmock/gmock.h>
#include <utime.h>

#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double hour = 3600;

/// Newest first, step i written at `hours[i]`; all sound.
std::vector<Candidate> written_at(const std::vector<double>& hours) {
  std::vector<Candidate> out;
  for (std::size_t i = hours.size(); i-- > 0;)
    out.push_back({static_cast<std::int64_t>(i), Condition::Kind::sound, false, hours[i] * hour});
  return out;
}

TEST(Superfluous, isWhatIsOlderThanTheNewestOnes) {
  const auto list = written_at({0, 1, 2, 3});
  EXPECT_THAT(superfluous(list, {2, 0}), ElementsAre(1, 0));
  EXPECT_THAT(superfluous(list, {4, 0}), IsEmpty());
  EXPECT_THAT(superfluous(list, {9, 0}), IsEmpty());
  EXPECT_THAT(superfluous(list, {0, 0}), ElementsAre(2, 1, 0));
  EXPECT_THAT(superfluous({}, {1, 0}), IsEmpty());
}

TEST(Superfluous, damagedOnesDoNotCountAndAreNotArchived) {
  auto list = written_at({0, 1, 2, 3});
  list[0].condition = list[1].condition = Condition::Kind::damaged;  // steps 3 and 2
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(0));
  EXPECT_THAT(superfluous(list, {2, 0}), IsEmpty());
  list = written_at({0, 1, 2, 3});
  list[3].condition = Condition::Kind::damaged;
  EXPECT_THAT(superfluous(list, {1, 2}), ElementsAre(2, 0));  // 1 is the oldest archive now
}

TEST(Superfluous, whatIsUnknownStaysAndMakesNoRoom) {
  auto list = written_at({0, 1, 2, 3, 4});
  list[0].condition = list[3].condition = Condition::Kind::unknown;  // steps 4 and 1
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(2, 0));
  EXPECT_THAT(superfluous(list, {2, 0}), ElementsAre(0));
  EXPECT_THAT(superfluous(list, {3, 0}), IsEmpty()) << "0 is the third sound one";
}

TEST(Superfluous, neverBelowOneSound) {
  auto list = written_at({0, 1, 2});
  for (auto& candidate : list) candidate.condition = Condition::Kind::damaged;
  EXPECT_THAT(superfluous(list, {1, 0}), IsEmpty());
}

TEST(Superfluous, theFirstOfEverySoManyHoursStays) {
  const auto list = written_at({0, 0.5, 1, 2.2, 2.5, 3.3, 9, 9.1});
  EXPECT_THAT(superfluous(list, {1, 1}), ElementsAre(4, 1));  // archives: 0, 1, 2.2, 3.3, 9
  EXPECT_THAT(superfluous(list, {1, 3}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(superfluous(list, {1, 100}), ElementsAre(6, 5, 4, 3, 2, 1));
}

TEST(Superfluous, pinnedOnesStay) {
  auto list = written_at({0, 1, 2, 3});
  list[2].pinned = true;  // step 1
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(2, 0));
}

TEST(Superfluous, leasedOnesStay) {
  auto list = written_at({0, 1, 2, 3});
  list[1].leased = true;  // step 2
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(1, 0));
}

/// Run after every commit, the rule takes nothing that it will want to have kept.
TEST(Superfluous, decidingAgainAndLaterKeepsTheArchives) {
  std::vector<Candidate> there;  // newest first
  for (int step = 0; step < 500; ++step) {
    there.insert(there.begin(), {step, Condition::Kind::sound, step == 77, step * 0.3 * hour});
    const auto gone = superfluous(there, {3, 4});
    std::erase_if(
        there, [&](const Candidate& c) { return std::find(gone.begin(), gone.end(), c.step) != gone.end(); });
    EXPECT_THAT(superfluous(there, {3, 4}), IsEmpty());
    EXPECT_EQ(there.front().step, step);
  }
  for (std::size_t i = 4; i < there.size(); ++i) {
    if (there[i].pinned || there[i - 1].pinned) continue;
    const double apart = there[i - 1].written - there[i].written;
    EXPECT_GE(apart, 4 * hour);
    EXPECT_LE(apart, 4.3 * hour);
  }
  EXPECT_TRUE(std::any_of(there.begin(), there.end(), [](const Candidate& c) { return c.step == 77; }));
  EXPECT_EQ(there.back().step, 0);
}

struct SavedAt : Saved {
  void written(std::int64_t step, std::int64_t seconds) {
    const utimbuf times{seconds, seconds};
    ASSERT_EQ(::utime((committed_path(path, step) / manifest_file_name).c_str(), &times), 0);
  }
};

TEST_F(SavedAt, theNewestSoundOnesStay) {
  save_steps({10, 20, 30, 40});
  EXPECT_THAT(retain(path, {2, 0}), ElementsAre(20, 10));
  EXPECT_THAT(files::list(path), ElementsAre("step-00000030", "step-00000040"));
}

TEST_F(SavedAt, oneSoundAlwaysStays) {
  save_steps({10, 20, 30});
  damage(30);
  damage(20);
  EXPECT_THAT(retain(path, {1, 0}), IsEmpty());  // 10 is the newest sound one
  EXPECT_THAT(retain(path, {0, 0}), IsEmpty());
  EXPECT_THAT(committed_steps(path), ElementsAre(30, 20, 10));
  save_steps({40});
  EXPECT_THAT(retain(path, {0, 0}), ElementsAre(30, 20, 10));
  EXPECT_TRUE(holds(committed_path(path, 40), vectors({10}), 40));
}

TEST_F(SavedAt, whatCannotBeReadNowIsThereWhenItCan) {
  save_steps({10, 20, 30, 40});
  fs::rename(committed_path(path, 10) / "shard-00000.h5", path / "aside");
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(30, 20));
  fs::rename(path / "aside", committed_path(path, 10) / "shard-00000.h5");
  EXPECT_TRUE(holds(committed_path(path, 10), vectors({10}), 10));
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(10));
}

TEST_F(SavedAt, archivesGoByTheTimeOfTheManifest) {
  save_steps({10, 20, 30, 40});
  written(10, 1'000'000);
  written(20, 1'003'000);
  written(30, 1'007'200);
  EXPECT_THAT(retain(path, {1, 2}), ElementsAre(20));
  EXPECT_THAT(committed_steps(path), ElementsAre(40, 30, 10));
}

TEST_F(SavedAt, pinsHoldUntilTheyAreTaken) {
  save_steps({10, 20, 30});
  EXPECT_TRUE(pin(path, 10));
  EXPECT_FALSE(pin(path, 10));
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(20));
  EXPECT_THAT(files::list(path), ElementsAre("step-00000010", "step-00000010.pin", "step-00000030"));
  EXPECT_TRUE(unpin(path, 10));
  EXPECT_FALSE(unpin(path, 10));
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(10));
  EXPECT_THROW(pin(path, 10), Error);
  EXPECT_THAT(files::list(path), ElementsAre("step-00000030"));
}

}  // namespace
}  // namespace holdfast::checkpoint

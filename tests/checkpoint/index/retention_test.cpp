// Which checkpoints stay.
#include "checkpoint/index/retention.hpp"

#include <gmock/gmock.h>
#include <utime.h>

#include "checkpoint/index/commit_record.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double hour = 3600;

/// Newest first, step i committed at `hours[i]`; all sound.
std::vector<Candidate> committed_at(const std::vector<double>& hours) {
  std::vector<Candidate> out;
  for (std::size_t i = hours.size(); i-- > 0;)
    out.push_back({static_cast<std::int64_t>(i), Condition::Kind::sound, false, hours[i] * hour});
  return out;
}

TEST(Superfluous, isWhatIsOlderThanTheNewestOnes) {
  const auto list = committed_at({0, 1, 2, 3});
  EXPECT_THAT(superfluous(list, {2, 0}), ElementsAre(1, 0));
  EXPECT_THAT(superfluous(list, {4, 0}), IsEmpty());
  EXPECT_THAT(superfluous(list, {9, 0}), IsEmpty());
  EXPECT_THAT(superfluous(list, {0, 0}), ElementsAre(2, 1, 0));
  EXPECT_THAT(superfluous({}, {1, 0}), IsEmpty());
}

TEST(Superfluous, damagedOnesDoNotCountAndAreNotArchived) {
  auto list = committed_at({0, 1, 2, 3});
  list[0].condition = list[1].condition = Condition::Kind::damaged;  // steps 3 and 2
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(0));
  EXPECT_THAT(superfluous(list, {2, 0}), IsEmpty());
  list = committed_at({0, 1, 2, 3});
  list[3].condition = Condition::Kind::damaged;
  EXPECT_THAT(superfluous(list, {1, 2}), ElementsAre(2, 0));  // 1 is the oldest archive now
}

TEST(Superfluous, whatIsUnknownStaysAndMakesNoRoom) {
  auto list = committed_at({0, 1, 2, 3, 4});
  list[0].condition = list[3].condition = Condition::Kind::unknown;  // steps 4 and 1
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(2, 0));
  EXPECT_THAT(superfluous(list, {2, 0}), ElementsAre(0));
  EXPECT_THAT(superfluous(list, {3, 0}), IsEmpty()) << "0 is the third sound one";
}

TEST(Superfluous, neverBelowOneSound) {
  auto list = committed_at({0, 1, 2});
  for (auto& candidate : list) candidate.condition = Condition::Kind::damaged;
  EXPECT_THAT(superfluous(list, {1, 0}), IsEmpty());
}

TEST(Superfluous, theFirstOfEverySoManyHoursStays) {
  const auto list = committed_at({0, 0.5, 1, 2.2, 2.5, 3.3, 9, 9.1});
  EXPECT_THAT(superfluous(list, {1, 1}), ElementsAre(4, 1));  // archives: 0, 1, 2.2, 3.3, 9
  EXPECT_THAT(superfluous(list, {1, 3}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(superfluous(list, {1, 100}), ElementsAre(6, 5, 4, 3, 2, 1));
}

TEST(Superfluous, pinnedOnesStay) {
  auto list = committed_at({0, 1, 2, 3});
  list[2].pinned = true;  // step 1
  EXPECT_THAT(superfluous(list, {1, 0}), ElementsAre(2, 0));
}

TEST(Superfluous, leasedOnesStay) {
  auto list = committed_at({0, 1, 2, 3});
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
    const double apart = there[i - 1].committed - there[i].committed;
    EXPECT_GE(apart, 4 * hour);
    EXPECT_LE(apart, 4.3 * hour);
  }
  EXPECT_TRUE(std::any_of(there.begin(), there.end(), [](const Candidate& c) { return c.step == 77; }));
  EXPECT_EQ(there.back().step, 0);
}

struct SavedAt : Saved {
  fs::path record(std::int64_t step) const { return committed_path(path, step) / commit_record_name; }
  void committed(std::int64_t step, std::int64_t seconds) {
    CommitRecord known = read_commit_record(committed_path(path, step)).value();
    known.committed = seconds;
    write_file(record(step), to_text(known));
  }
  /// As formats 1 to 4 have it.
  void without_record(std::int64_t step, std::int64_t written) {
    fs::remove(record(step));
    const utimbuf times{written, written};
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

TEST_F(SavedAt, archivesGoByTheTimeOfTheirCommit) {
  save_steps({10, 20, 30, 40, 50});
  without_record(10, 1'000'000);
  without_record(20, 1'003'000);
  committed(30, 1'007'200);
  committed(40, 1'007'300);
  EXPECT_THAT(retain(path, {1, 2}), ElementsAre(40, 20));
  EXPECT_THAT(committed_steps(path), ElementsAre(50, 30, 10));
}

/// Of archives the record alone is read; what a removal rests on is looked at in full.
TEST_F(SavedAt, recordsDecideAboutArchivesOnly) {
  save_steps({10, 20, 30, 40});
  const auto condition = [&](std::int64_t step) {
    for (const Candidate& candidate : candidates(path, 1))
      if (candidate.step == step) return candidate.condition;
    return Condition::Kind::unknown;
  };
  damage(30);
  damage(40);
  EXPECT_EQ(condition(40), Condition::Kind::damaged);
  EXPECT_EQ(condition(30), Condition::Kind::damaged) << "no sound one was found before it";
  damage(10);
  EXPECT_EQ(condition(10), Condition::Kind::sound) << "by its record";
  flip_bit(record(10), 333);
  EXPECT_EQ(condition(10), Condition::Kind::damaged) << "by its manifest, since the record is damaged";
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(10));
}

TEST_F(SavedAt, aRecordThatDoesNotFitProvesDamageAndOneThatCannotBeReadProvesNothing) {
  save_steps({10, 20, 30});
  const auto kind_of_10 = [&] { return candidates(path, 1).back().condition; };
  const fs::path manifest = committed_path(path, 10) / manifest_file_name;
  EXPECT_EQ(kind_of_10(), Condition::Kind::sound);
  const std::string text = read_file(manifest), known = read_file(record(10));
  write_file(manifest, text + " ");
  EXPECT_EQ(kind_of_10(), Condition::Kind::damaged);
  write_file(manifest, text);
  fs::copy_file(record(20), record(10), fs::copy_options::overwrite_existing);
  EXPECT_EQ(kind_of_10(), Condition::Kind::damaged) << "it is that of step 20";
  write_file(record(10), with_schema_version(known, 99));
  EXPECT_EQ(kind_of_10(), Condition::Kind::unknown);
  EXPECT_THAT(retain(path, {1, 0}), ElementsAre(20)) << "nobody knows what step 10 is";
  fs::remove(record(10));
  fs::create_symlink(record(10).filename(), record(10));
  EXPECT_EQ(kind_of_10(), Condition::Kind::unknown);
  fs::remove(record(10));
  fs::rename(manifest, path / "aside");
  write_file(record(10), known);
  EXPECT_EQ(kind_of_10(), Condition::Kind::unknown);
  EXPECT_THAT(retain(path, {1, 0}), IsEmpty());
}

TEST(CommitRecord, goesThereAndBackInLessThanAKilobyte) {
  const CommitRecord record{INT64_MAX, {INT32_MAX, INT32_MAX}, INT64_MAX, INT64_MAX,
                            INT64_MAX, std::string(32, 'f')};
  const std::string text = to_text(record);
  EXPECT_LT(text.size(), 1024u);
  EXPECT_EQ(parse_commit_record(text), record);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(parse_commit_record(text.substr(0, size)), Damaged) << size;
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

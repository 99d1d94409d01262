// Names on disk, which checkpoints there are, and what is garbage.
#include "checkpoint/index/catalog.hpp"

#include <gmock/gmock.h>

#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Name::Kind;

TEST(Catalog, namesGoThereAndBack) {
  const std::pair<const char*, Name> names[] = {
      {"step-00000100", {Kind::committed, 100, {}, 0}},
      {"step-00000000", {Kind::committed, 0, {}, 0}},
      {"step-123456789012", {Kind::committed, 123456789012, {}, 0}},
      {"step-00000100.tmp-3-7", {Kind::temporary, 100, {3, 7}, 0}},
      {"step-00000100.replaced-2", {Kind::replaced, 100, {}, 2}},
      {".trash-00000100-2", {Kind::trash, 100, {}, 2}},
      {"step-00000100.pin", {Kind::pin, 100, {}, 0}},
      {"step-00000100.best", {Kind::best, 100, {}, 0}},
      {"step-00000100.lease-00fedcba98765432", {Kind::lease, 100, {}, 0, 0xfedcba98765432}},
  };
  for (const auto& [text, name] : names) {
    EXPECT_EQ(parse_name(text), name) << text;
    EXPECT_EQ(print_name(name), text);
  }
}

TEST(Catalog, everythingElseIsNotOurs) {
  for (const char* text : {"",
                           "step-",
                           "step-100",
                           "step-000000100",
                           "step-00000100x",
                           "step--0000100",
                           "step-+0000100",
                           "step-00000100.tmp",
                           "step-00000100.tmp-3",
                           "step-00000100.pin2",
                           "step-100.pin",
                           "step-00000100.lease-",
                           "step-00000100.lease-fedcba98765432",
                           "step-00000100.lease-00FEDCBA98765432",
                           "step-00000100.lease-0x00000000000001",
                           "step-00000100.tmp-3-",
                           "step-00000100.tmp-3-07",
                           "step-00000100.tmp-3-7-",
                           "step-00000100.tmp--3-7",
                           "step-00000100.replaced",
                           "step-00000100.replaced-02",
                           ".trash-00000100",
                           ".trash-100-1",
                           "Step-00000100",
                           "step-99999999999999999999",
                           "step-00000100/",
                           "latest",
                           "notes.txt"})
    EXPECT_EQ(parse_name(text).kind, Kind::other) << text;
}

TEST(Catalog, generationsAreOrdered) {
  EXPECT_LT((Generation{1, 2}), (Generation{1, 3}));
  EXPECT_LT((Generation{1, 3}), (Generation{2, 3}));
}

TEST_F(Saved, newestSoundPassesOverDamagedOnesAndSaysSo) {
  save_steps({10, 20, 30});
  EXPECT_THAT(committed_steps(path), ElementsAre(30, 20, 10));
  EXPECT_EQ(newest_sound(path)->step, 30);
  damage(30);
  damage(20);
  std::vector<std::string> notes;
  EXPECT_EQ(newest_sound(path, &notes)->step, 10);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step-00000030"), HasSubstr("shard-00000.h5 has 50 bytes")));
  EXPECT_FALSE(newest_sound(path / "nowhere"));
}

/// Nobody knows whether it is sound: then the one before it is not the newest sound one.
TEST_F(Saved, whatCannotBeReadIsNotPassedOver) {
  save_steps({10, 20});
  const fs::path newest = committed_path(path, 20);
  for (const char* name : {"manifest.json", "shard-00000.h5"}) {
    fs::rename(newest / name, path / "aside");
    try {
      newest_sound(path);
      ADD_FAILURE() << "without " << name;
    } catch (const Unreadable& e) {
      EXPECT_EQ(e.exit(), Exit::transient);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("step-00000020"), HasSubstr(name)));
    }
    EXPECT_EQ(condition_of(newest).kind, Condition::Kind::unknown);
    fs::create_symlink(name, newest / name);  // to itself: ELOOP
    EXPECT_THROW(newest_sound(path), Unreadable);
    fs::remove(newest / name);
    fs::rename(path / "aside", newest / name);
  }
  EXPECT_EQ(condition_of(newest).kind, Condition::Kind::sound);
  write_file(newest / "manifest.json", with_schema_version(read_file(newest / "manifest.json"), 99));
  try {
    newest_sound(path);
    ADD_FAILURE() << "of a newer format";
  } catch (const NewerFormat& e) {
    EXPECT_EQ(e.exit(), Exit::no_requeue);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("step-00000020"), HasSubstr("manifest.json"), HasSubstr("99")));
  }
  EXPECT_EQ(condition_of(newest).kind, Condition::Kind::unknown);
  fs::create_symlink("loop", path / "loop");
  EXPECT_THROW(committed_steps(path / "loop"), Unreadable);
  write_file(path / "no folder", "");
  EXPECT_TRUE(committed_steps(path / "no folder").empty());
}

TEST_F(Saved, aCheckpointUnderAnotherStepsNameIsNotSound) {
  save_steps({10});
  fs::rename(committed_path(path, 10), committed_path(path, 11));
  EXPECT_FALSE(newest_sound(path));
}

TEST_F(Saved, sweepTakesOnlyWhatIsDead) {
  save_steps({10});
  for (const char* name : {"step-00000020.tmp-1-1", "step-00000020.tmp-1-2", "step-00000030.tmp-1-2",
                           "step-00000020.tmp-2-3", ".trash-00000005-1", "step-00000010.pin", "mine"})
    fs::create_directories(path / name / "inside");
  sweep(path, {1, 2}, 20);
  EXPECT_THAT(files::list(path), ElementsAre("mine", "step-00000010", "step-00000010.pin",
                                             "step-00000020.tmp-2-3", "step-00000030.tmp-1-2"));
}

TEST_F(Saved, nextAttemptIsAboveEveryTrace) {
  EXPECT_EQ(next_attempt(path / "nowhere"), 1);
  save_steps({10});
  EXPECT_EQ(next_attempt(path), 2);
  fs::create_directory(path / "step-00000020.tmp-0-6");
  EXPECT_EQ(next_attempt(path), 7);
  fs::remove(committed_path(path, 10) / "manifest.json");
  EXPECT_THROW(next_attempt(path), Unreadable);
  EXPECT_EQ(next_attempt(path, 3), 7) << "by its record";
  EXPECT_EQ(next_attempt(path, 8), 9);
}

}  // namespace
}  // namespace holdfast::checkpoint

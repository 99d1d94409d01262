// Checkpoints of another program's files: votes in, a manifest out; damage, retention, and what a start may
// use.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/files_check.hpp"
#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/manifest_json.hpp"
#include "checkpoint/index/retention.hpp"
#include "checkpoint/verify/verify.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Of "abc" (FIPS 180-4), cut to 256 bits.
constexpr const char* digest_of_abc = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";

const fs::path golden_files = fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-6";

FilesManifest small_manifest() {
  return {{3, 7},
          100,
          2,
          "/shared/runs/mine/checkpoints",
          "/shared/mine/step-100",
          {{"rank-0/model.pt", 3, digest_of_abc, 0}, {"rank-1/model.pt", 0, std::string(64, '0'), 1}}};
}

TEST(FilesManifests, areWhatTheyWere) {
  const std::string text = read_file(golden_files / manifest_file_name);
  EXPECT_EQ(to_text(small_manifest()), text) << "checkpoint/FORMAT.md says how it is changed";
  const FilesManifest read = parse_files_manifest(text);
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.files, small_manifest().files);
  EXPECT_EQ(total_bytes(read), 3);
  const CommitRecord record = read_commit_record(golden_files).value();
  EXPECT_TRUE(record.files);
  EXPECT_EQ(record, commit_record_of(read, text, record.committed));
  EXPECT_EQ(to_text(record), read_file(golden_files / commit_record_name));
}

TEST(FilesManifests, DISABLED_writeAgain) {
  fs::create_directories(golden_files);
  const std::string text = to_text(small_manifest());
  write_file(golden_files / manifest_file_name, text);
  write_file(golden_files / commit_record_name,
             to_text(commit_record_of(small_manifest(), text, 1'795'000'000)));
}

TEST(FilesManifests, areOfAnotherKindForWhoReadsTensors) {
  EXPECT_TRUE(lists_files(to_text(small_manifest())));
  try {
    read_manifest(golden_files);
    FAIL() << "taken for tensors";
  } catch (const OtherKind& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("version-6"), HasSubstr("another kind")));
    EXPECT_EQ(e.exit(), Exit::no_requeue);
  }
  const std::string tensors =
      read_file(fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-5/manifest.json");
  EXPECT_FALSE(lists_files(tensors));
  EXPECT_THROW(parse_files_manifest(tensors), Damaged);
  EXPECT_THROW(parse_files_manifest(with_schema_version(to_text(small_manifest()), 99)), NewerFormat);
}

TEST(FilesManifests, refuseWhatIsNotPossible) {
  const auto refused = [](auto change, const char* why) {
    FilesManifest m = small_manifest();
    change(m);
    try {
      parse_files_manifest(to_text(m));
      ADD_FAILURE() << why;
    } catch (const Damaged& e) {
      EXPECT_THAT(e.what(), HasSubstr(why));
    }
  };
  for (const char* name : {"", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\nb"})
    refused([&](FilesManifest& m) { m.files[0].name = name; }, "is not the relative name of a file");
  for (const char* folder : {"", "a", "/a/", "/a/../b", "/a//b"}) {
    refused([&](FilesManifest& m) { m.folder = folder; }, "is not the absolute path of a folder");
    refused([&](FilesManifest& m) { m.checkpoints = folder; }, "is not the absolute path of a folder");
  }
  refused([](FilesManifest& m) { m.files[1].name = m.files[0].name; }, "is named twice");
  refused([](FilesManifest& m) { m.files[1].rank = 2; }, "is of a rank that was not there");
  refused([](FilesManifest& m) { m.files[1].digest.pop_back(); }, "has no digest");
  refused([](FilesManifest& m) { m.files[1].digest[3] = 'F'; }, "has no digest");
  refused([](FilesManifest& m) { m.files.clear(); }, "it lists no file");
  refused([](FilesManifest& m) { m.world = 0; }, "nobody has written it");
  for (auto [from, to] :
       {std::pair("\"world\":2", "\"world\":2,\"more\":1"), {"\"kind\":\"files\"", "\"kind\":\"b\""}}) {
    std::string text = to_text(small_manifest());
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THROW(parse_files_manifest(text), Damaged) << "another digest";
    text = detail::with_own_digest(files_version, text.substr(text.find('\n') + 1));
    EXPECT_THROW(parse_files_manifest(text), Damaged) << to;
  }
}

/// A program of two ranks that saves below a folder of its own.
struct ProgramFiles : ::testing::Test {
  const Folder folder;
  const fs::path base = fs::canonical(folder.path()), checkpoints = base / "run/checkpoints",
                 own = base / "own";

  ProgramFiles() { fs::create_directories(checkpoints); }
  static std::string name(std::int64_t step, int rank) {
    return "step-" + std::to_string(step) + "/rank-" + std::to_string(rank);
  }
  fs::path file(std::int64_t step, int rank) const { return own / name(step, rank); }
  std::string vote(std::int64_t step, int rank, const std::string& text) const {
    fs::create_directories(file(step, rank).parent_path());
    write_file(file(step, rank), text);
    const auto list = nlohmann::json::array(
        {nlohmann::json::array({name(step, rank), text.size(), file_digest(file(step, rank))})});
    return vote_of(own, 1, text.size(), list);
  }
  static std::string vote_of(const fs::path& path, std::size_t files, std::size_t bytes,
                             const nlohmann::json& list) {
    return nlohmann::json{
        {"kind", "files"}, {"path", path.string()}, {"files", files}, {"bytes", bytes}, {"list", list}}
        .dump();
  }
  Committed save(std::int64_t step, int attempt = 1) const {
    Commit commit(checkpoints, step, {1, attempt}, 2);
    for (const int rank : {0, 1}) commit.add(rank, true, vote(step, rank, std::string(1000 + step, 'x')));
    EXPECT_FALSE(commit.failed()) << commit.why();
    return commit.commit();
  }
  /// One rank's, each of them "abc".
  FilesManifest save_in(const fs::path& path, std::int64_t step,
                        const std::vector<std::string>& names) const {
    auto list = nlohmann::json::array();
    for (const std::string& each : names) {
      fs::create_directories((path / each).parent_path());
      write_file(path / each, "abc");
      list.push_back(nlohmann::json::array({each, 3, digest_of_abc}));
    }
    Commit commit(checkpoints, step, {1, 1}, 1);
    commit.add(0, true, vote_of(path, names.size(), 3 * names.size(), list));
    return condition_of(commit.commit().path).files.value();
  }
  /// As bits rot: the time of the file stays.
  template <class Change>
  static void rot(const fs::path& path, Change change) {
    const auto written = fs::last_write_time(path);
    change(path);
    fs::last_write_time(path, written);
  }
  static void flip(const fs::path& path) {
    rot(path, [](const fs::path& file) { flip_bit(file, 0); });
  }
  static void cut(const fs::path& path, std::uintmax_t bytes) {
    rot(path, [&](const fs::path& file) { fs::resize_file(file, bytes); });
  }
  static void write_again(const fs::path& path, const std::string& text) {
    write_file(path, text);
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
  }
  void damage_manifest(std::int64_t step) const {
    flip_bit(committed_path(checkpoints, step) / manifest_file_name, 8 * 200);
  }
  std::vector<std::string> problems(std::int64_t step) const {
    return verify(committed_path(checkpoints, step)).problems;
  }
};

TEST_F(ProgramFiles, itsNamedFilesAreCommitted) {
  const Committed committed = save(10);
  EXPECT_EQ(committed.path, committed_path(checkpoints, 10));
  EXPECT_EQ(committed.note, "2 files, 2020 bytes, below " + own.string());
  EXPECT_THAT(files::list(checkpoints), ElementsAre("step-00000010"));
  const Condition found = condition_of(committed.path, 10);
  ASSERT_TRUE(found.files) << found.why;
  EXPECT_EQ(found.files->files[1].name, "step-10/rank-1");
  EXPECT_EQ(found.files->files[1].rank, 1);
  EXPECT_EQ(condition_of(committed.path, 11).kind, Condition::Kind::damaged);
  const Verified verified = verify(committed.path);
  EXPECT_THAT(verified.problems, IsEmpty());
  EXPECT_EQ(verified.bytes, 2020);
  EXPECT_EQ(verified.files, 2);
  EXPECT_EQ(newest_sound_folder(checkpoints), committed.path);
  // Written again by a later attempt, and then by one that was taken for dead.
  EXPECT_THAT(save(10, 2).note, HasSubstr("is put aside as step-00000010.replaced-1"));
  EXPECT_EQ(save(10, 1).note, "step-00000010 was already committed");
  EXPECT_EQ(condition_of(committed.path).files->generation, (Generation{1, 2}));
}

TEST_F(ProgramFiles, itsRanksMayHaveFoldersOfTheirOwn) {
  Commit commit(checkpoints, 10, {1, 1}, 3);
  for (const int rank : {0, 1}) {
    const fs::path folder_of_rank = own / ("rank-" + std::to_string(rank));
    fs::create_directories(folder_of_rank);
    write_file(folder_of_rank / "model.pt", "abc");
    const auto list = nlohmann::json::array({nlohmann::json::array({"model.pt", 3, digest_of_abc})});
    commit.add(rank, true, vote_of(folder_of_rank / "" / ".", 1, 3, list));
  }
  commit.add(2, true, vote_of(folder.path() / "elsewhere", 0, 0, nlohmann::json::array()));
  const auto found = condition_of(commit.commit().path).files;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->folder, own.string());
  EXPECT_EQ(found->files[1].name, "rank-1/model.pt");
  EXPECT_EQ(found->world, 3);
  EXPECT_THAT(problems(10), IsEmpty());
}

TEST_F(ProgramFiles, theyAreKnownByWhereTheyReallyAre) {
  const fs::path latest = own / "latest";
  for (const char* step : {"10", "20"}) {
    fs::create_directories(own / step);
    fs::remove(latest);
    fs::create_directory_symlink(step, latest);
    EXPECT_EQ(save_in(latest, std::stoi(step), {"rank-0"}).folder, (own / step).string());
  }
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own), ElementsAre("20", "latest"));
  fs::create_directories(own / "a/b");
  fs::create_directory_symlink(own / "a/b", own / "link");
  EXPECT_EQ(save_in(own / "link/../c", 30, {"x"}).folder, (own / "a/c").string());
}

TEST_F(ProgramFiles, aFileThatRanksNameAlikeIsListedOnce) {
  fs::create_directories(own);
  fs::create_directory_symlink(own, folder.path() / "alias");
  Commit commit(checkpoints, 10, {1, 1}, 2);
  write_file(own / "of-all", "abc");
  const auto list = nlohmann::json::array({nlohmann::json::array({"of-all", 3, digest_of_abc})});
  commit.add(0, true, vote_of(own, 1, 3, list));
  commit.add(1, true, vote_of(folder.path() / "alias", 1, 3, list));
  const auto found = condition_of(commit.commit().path).files;
  ASSERT_TRUE(found);
  EXPECT_THAT(found->files, ElementsAre(ListedFile{"of-all", 3, digest_of_abc, 0}));
}

TEST_F(ProgramFiles, filesThatOneRankOnlyCountsHaveNoManifest) {
  Commit commit(checkpoints, 10, {1, 1}, 2);
  commit.add(0, true, vote(10, 0, "abc"));
  commit.add(1, true, R"({"kind":"files","path":"/own","files":2,"bytes":7})");
  const Committed committed = commit.commit();
  EXPECT_TRUE(committed.path.empty());
  EXPECT_THAT(committed.note,
              AllOf(HasSubstr("3 files, 10 bytes"), HasSubstr("rank 1 has not named its files")));
  EXPECT_THAT(files::list(checkpoints), IsEmpty());
}

TEST_F(ProgramFiles, filesAmongOursHaveNoManifest) {
  const fs::path inside = checkpoints / "step-00000010";
  fs::create_directories(inside);
  write_file(inside / "model.pt", "abc");
  Commit commit(checkpoints, 10, {1, 1}, 1);
  commit.add(
      0, true,
      vote_of(inside, 1, 3, nlohmann::json::array({nlohmann::json::array({"model.pt", 3, digest_of_abc})})));
  const Committed committed = commit.commit();
  EXPECT_TRUE(committed.path.empty());
  EXPECT_THAT(committed.note, HasSubstr("they have no manifest"));
  EXPECT_EQ(read_file(inside / "model.pt"), "abc");
}

TEST_F(ProgramFiles, whatDoesNotFitIsNotCommitted) {
  const auto entry = [](const char* name, int bytes) {
    return nlohmann::json::array({name, bytes, digest_of_abc});
  };
  const auto refused = [&](const nlohmann::json& list, int files, int bytes, const char* why) {
    Commit commit(checkpoints, 10, {1, 1}, 1);
    commit.add(0, true, vote_of(own, files, bytes, list));
    std::string said = commit.why();
    try {
      if (!commit.failed()) commit.commit();
    } catch (const Error& e) {
      said = e.what();
    }
    EXPECT_THAT(said, HasSubstr(why));
    EXPECT_THAT(committed_steps(checkpoints), IsEmpty());
    commit.drop();
  };
  fs::create_directories(own);
  write_file(own / "a", "abc");
  refused(nlohmann::json::array({entry("a", 3)}), 2, 3, "its counts are not those of its list");
  refused(nlohmann::json::array({entry("a", 4)}), 1, 4, "3 bytes, not 4");
  refused(nlohmann::json::array({entry("b", 3)}), 1, 3, "cannot look at");
  refused(nlohmann::json::array({entry("../a", 3)}), 1, 3, "is not the relative name of a file");
  auto other = entry("a", 3);
  other[2] = std::string(64, '0');
  refused(nlohmann::json::array({entry("a", 3), other}), 2, 6, "is named twice");
  refused(nlohmann::json::array({1}), 1, 3, "is not [name, bytes, digest]");
}

TEST_F(ProgramFiles, damageIsProvenAndWhatIsMissingIsUnknown) {
  save(10);
  const fs::path step_dir = committed_path(checkpoints, 10);
  flip(file(10, 1));
  EXPECT_EQ(condition_of(step_dir).kind, Condition::Kind::sound) << "the sizes are right";
  EXPECT_THAT(problems(10), ElementsAre(file(10, 1).string() + " does not match its digest"));
  cut(file(10, 1), 999);
  EXPECT_EQ(condition_of(step_dir).kind, Condition::Kind::damaged);
  EXPECT_THAT(problems(10), ElementsAre(HasSubstr("has 999 bytes, not 1010")));
  fs::remove(file(10, 0));
  EXPECT_TRUE(verify(step_dir).unreadable);
  EXPECT_EQ(condition_of(step_dir).kind, Condition::Kind::damaged) << "one missing file hides no damage";
  fs::remove(file(10, 1));
  EXPECT_EQ(condition_of(step_dir).kind, Condition::Kind::unknown);
  EXPECT_THROW(newest_sound_folder(checkpoints), Unreadable);
}

constexpr std::int64_t all_bytes = INT64_MAX;

TEST_F(ProgramFiles, anAttemptBeginsFromTheNewestThatIsNotProvenDamaged) {
  for (const std::int64_t step : {10, 20, 30}) save(step);
  const std::vector<std::int64_t> on_record = {30, 20, 10, 5};
  EXPECT_THAT(judge(checkpoints, on_record, all_bytes).steps, ElementsAre(30, 20, 10)) << "5 was removed";
  flip(file(30, 0));
  EXPECT_THAT(judge(checkpoints, on_record, 2059).steps, ElementsAre(30, 20, 10)) << "too much to be read";
  const Judgement found = judge(checkpoints, on_record, all_bytes);
  EXPECT_THAT(found.steps, ElementsAre(20, 10));
  EXPECT_THAT(found.damaged, ElementsAre(Pair(30, HasSubstr("step-30/rank-0 does not match its digest"))));
  fs::remove(file(20, 0));  // it may come back: nothing older is taken
  EXPECT_THAT(judge(checkpoints, on_record, all_bytes).steps, ElementsAre(20, 10));
  for (const std::int64_t step : {10, 20, 30}) cut(file(step, 1), 1);
  EXPECT_THAT(judge(checkpoints, on_record, 0).steps, ElementsAre(5)) << "it may have been counted only";
  EXPECT_THAT(judge(checkpoints, on_record, 0).damaged, ::testing::SizeIs(3));
  EXPECT_THAT(judge(checkpoints, std::span(on_record).first(3), 0).steps, IsEmpty());
  // Of a program that only counts there is nothing to be known.
  const std::vector<std::int64_t> counted = {60, 50};
  EXPECT_THAT(judge(checkpoints, counted, all_bytes).steps, ElementsAre(60, 50));
}

TEST_F(ProgramFiles, whatWasWrittenAgainProvesNoDamage) {
  save_in(own, 10, {"latest", "10/state"});
  save_in(own, 20, {"latest", "20/state"});
  write_again(own / "latest", "longer");
  const fs::path step_dir = committed_path(checkpoints, 20);
  EXPECT_EQ(condition_of(step_dir).kind, Condition::Kind::unknown);
  EXPECT_THAT(condition_of(step_dir).why, HasSubstr("own/latest was written again since"));
  EXPECT_THAT(problems(20), ElementsAre(HasSubstr("latest was written again since")));
  EXPECT_TRUE(verify(step_dir).unreadable);
  EXPECT_THROW(newest_sound_folder(checkpoints), WrittenAgain) << "so was that of 10";
  const std::vector<std::int64_t> on_record = {20, 10};
  EXPECT_THAT(judge(checkpoints, on_record, all_bytes).steps, ElementsAre(20, 10)) << "the program will see";
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), IsEmpty()) << "20 may be half of another one";
  flip(own / "20/state");
  EXPECT_THAT(judge(checkpoints, on_record, all_bytes).steps, ElementsAre(10)) << "it hides no damage";
  write_again(own / "latest", "abc");
  flip(own / "20/state");
  EXPECT_THAT(problems(20), IsEmpty()) << "the same again";
}

TEST_F(ProgramFiles, aFileThatEachSaveWritesAgainKeepsNoneFromGoing) {
  for (const char* step : {"10", "20", "30", "40"})
    save_in(own, std::stoi(step), {"latest", step + std::string("/state")});
  for (const char* step : {"10", "20", "30"}) {  // an hour ago
    const auto then = fs::last_write_time(own / "latest") - std::chrono::hours(1);
    fs::last_write_time(own / step / "state", then);
    fs::last_write_time(committed_path(checkpoints, std::stoi(step)) / manifest_file_name, then);
  }
  EXPECT_EQ(condition_of(committed_path(checkpoints, 30)).kind, Condition::Kind::unknown);
  EXPECT_THAT(retain(checkpoints, {1, 0, 2, {base}}), ElementsAre(20, 10));
  EXPECT_THAT(files::list(own), ElementsAre("30", "40", "latest"));
}

TEST_F(ProgramFiles, itsFilesGoOnlyWhereThatIsAskedFor) {
  for (const std::int64_t step : {10, 20, 30, 40}) save(step);
  EXPECT_THAT(retain(checkpoints, {1, 0}), IsEmpty());
  EXPECT_TRUE(pin(checkpoints, 10));
  const Lease lease(committed_path(checkpoints, 20));
  write_file(own / "step-30/notes", "of somebody else");
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(30));
  EXPECT_THAT(committed_steps(checkpoints), ElementsAre(40, 20, 10));
  EXPECT_THAT(files::list(own / "step-30"), ElementsAre("notes"));
  EXPECT_THAT(problems(10), IsEmpty());
  EXPECT_THAT(problems(20), IsEmpty());
}

TEST_F(ProgramFiles, itsFilesGoWithTheirFolders) {
  for (const std::int64_t step : {10, 20, 30}) save(step);
  EXPECT_THAT(retain(checkpoints, {1, 0, 2, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own), ElementsAre("step-20", "step-30"));
  flip(file(30, 0));
  EXPECT_THAT(retain(checkpoints, {1, 0, 2, {base}}), IsEmpty()) << "its size is right, and 20 stays";
  cut(file(30, 0), 1);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), IsEmpty()) << "20 is the newest sound one";
}

TEST_F(ProgramFiles, ofACopiedRunNoFileGoes) {
  for (const std::int64_t step : {10, 20}) save(step);
  const fs::path copy = folder.path() / "copy/checkpoints";
  fs::create_directories(copy.parent_path());
  fs::copy(checkpoints, copy, fs::copy_options::recursive);
  EXPECT_THAT(retain(copy, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(committed_steps(copy), ElementsAre(20));
  EXPECT_THAT(problems(10), IsEmpty());
  const fs::path link = folder.path() / "link";
  fs::create_directory_symlink(checkpoints, link);
  EXPECT_THAT(retain(link, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own), ElementsAre("step-20")) << "the same folder by another name";
}

TEST_F(ProgramFiles, filesThatAreStillNeededStay) {
  for (const std::int64_t step : {10, 20}) save_in(own, step, {"latest", "only-" + std::to_string(step)});
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own), ElementsAre("latest", "only-20"));
  EXPECT_THAT(problems(20), IsEmpty());
}

TEST_F(ProgramFiles, filesThatWereMovedBehindALinkStay) {
  for (const std::int64_t step : {10, 20}) save(step);
  const fs::path archive = folder.path() / "archive";
  fs::rename(own / "step-10", archive);
  fs::create_directory_symlink(archive, own / "step-10");
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(archive), ElementsAre("rank-0", "rank-1"));
  EXPECT_THAT(files::list(own), ElementsAre("step-10", "step-20"));
}

TEST_F(ProgramFiles, filesThatWereWrittenAgainStay) {
  for (const std::int64_t step : {10, 20}) save(step);
  write_again(file(10, 1), "somebody's");
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own / "step-10"), ElementsAre("rank-1")) << "it is somebody's next checkpoint";
}

/// A run that somebody hands over: its manifests may list any files, and have any time.
TEST_F(ProgramFiles, filesThatAManifestOnlyClaimsStay) {
  const fs::path precious = base / "precious";
  const auto forged = [&](std::int64_t bytes) {
    for (const fs::path& old : {checkpoints, own}) fs::remove_all(old);
    fs::create_directories(checkpoints);
    for (const std::int64_t step : {10, 20}) save(step);
    fs::create_directories(precious);
    write_file(precious / "thesis", "abc");
    FilesManifest manifest =
        parse_files_manifest(read_file(committed_path(checkpoints, 10) / manifest_file_name));
    manifest.folder = precious.string();
    manifest.files = {{"thesis", bytes, std::string(64, '0'), 0}};
    const std::string text = to_text(manifest);
    write_file(committed_path(checkpoints, 10) / manifest_file_name, text);
    write_file(committed_path(checkpoints, 10) / commit_record_name,
               to_text(commit_record_of(manifest, text, 1'795'000'000)));
    fs::last_write_time(committed_path(checkpoints, 10) / manifest_file_name,
                        fs::file_time_type::clock::now() + std::chrono::hours(1));
  };
  const auto is_there = [&] { return fs::exists(precious / "thesis"); };
  forged(999);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_TRUE(is_there()) << "it never had that size";
  forged(3);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1}), ElementsAre(10));
  EXPECT_TRUE(is_there()) << "nobody has named a folder";
  forged(3);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base / "run", base / "pre"}}), ElementsAre(10));
  EXPECT_TRUE(is_there()) << "it is elsewhere";
  if (::geteuid() == 0) {
    forged(3);
    ASSERT_EQ(::chown((precious / "thesis").c_str(), 61001, 0), 0);
    EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
    EXPECT_TRUE(is_there()) << "it is another user's";
    ASSERT_EQ(::chown((precious / "thesis").c_str(), 0, 0), 0);
  }
  forged(3);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {precious}}), ElementsAre(10));
  EXPECT_FALSE(is_there()) << "whoever names the folder asks for it";
}

TEST_F(ProgramFiles, ofADamagedOneAllFilesStay) {
  for (const std::int64_t step : {10, 20}) save(step);
  cut(file(10, 1), 1);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(own / "step-10"), ElementsAre("rank-0", "rank-1"));
}

TEST_F(ProgramFiles, nothingGoesWhileWhatStaysCannotBeRead) {
  for (const std::int64_t step : {10, 20, 30}) save(step);
  fs::rename(committed_path(checkpoints, 20) / manifest_file_name, folder.path() / "aside");
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), IsEmpty()) << "20 may list the files of 10";
  fs::rename(folder.path() / "aside", committed_path(checkpoints, 20) / manifest_file_name);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(20, 10));
}

TEST_F(ProgramFiles, nothingGoesWhileTheManifestOfWhatStaysIsDamaged) {
  for (const std::int64_t step : {10, 20, 30}) save_in(own, step, {"of-all", "only-" + std::to_string(step)});
  fs::last_write_time(own / "of-all", fs::last_write_time(own / "only-10"));
  EXPECT_TRUE(pin(checkpoints, 20));
  damage_manifest(20);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), IsEmpty()) << "20 may list the files of 10";
  EXPECT_TRUE(unpin(checkpoints, 20));
  damage_manifest(20);
  damage_manifest(30);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), IsEmpty()) << "30 is newer than what stays";
  damage_manifest(30);
  damage_manifest(20);
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(20, 10)) << "20 does not stay";
  EXPECT_THAT(files::list(own), ElementsAre("of-all", "only-20", "only-30")) << "nobody knows what 20 listed";
}

TEST_F(ProgramFiles, onlyFoldersOfACheckpointGoWithIt) {
  const fs::path side = own / "by-step", flat = folder.path() / "flat";
  for (const char* step : {"10", "20"}) save_in(side / step, std::stoi(step), {"a/b", "c"});
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(files::list(side), ElementsAre("20"));
  save_in(flat, 30, {"a/only-30"});
  EXPECT_THAT(retain(checkpoints, {1, 0, 1, {base}}), ElementsAre(20));
  EXPECT_TRUE(fs::is_empty(side / "20")) << "where a program saves is not ours to remove";
  EXPECT_THAT(files::list(flat / "a"), ElementsAre("only-30"));
}

TEST_F(ProgramFiles, eachKindHasItsOwnRetention) {
  for (const std::int64_t step : {10, 20}) save(step);
  for (std::int64_t step : {15, 25}) {
    Whole whole(vectors({10}), step);
    testing::save(checkpoints, whole, step, {1, 1}, even_layout(whole.tensors, 1), 9);
  }
  EXPECT_THAT(retain(checkpoints, {1, 0}), ElementsAre(15));
  EXPECT_THAT(retain(checkpoints, {9, 0, 1, {base}}), ElementsAre(10));
  EXPECT_THAT(committed_steps(checkpoints), ElementsAre(25, 20));
}

}  // namespace
}  // namespace holdfast::checkpoint

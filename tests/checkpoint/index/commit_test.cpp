// Votes in, one checkpoint or none out.
#include "checkpoint/index/commit.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/verify/verify.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Commits : ::testing::Test {
  const Folder folder;
  const fs::path& path = folder.path();
  Whole whole{vectors({100, 33}), 10};
  const WriterLayout layout = even_layout(whole.tensors, 2);

  std::string vote(int rank, std::int64_t step, Generation generation, const Facts& facts = some_facts(2)) {
    ShardWriter writer(path, rank, generation, whole.tensors, layout, facts);
    return write_shard(writer, whole, {step, 0, 0});
  }
  std::string vote(int rank) { return vote(rank, 10, {1, 1}); }
};

TEST_F(Commits, onlyWithEveryVote) {
  Commit commit(path, 10, {1, 1}, 2);
  EXPECT_THAT(commit.missing(), ElementsAre(0, 1));
  commit.add(1, true, vote(1));
  EXPECT_FALSE(commit.complete());
  EXPECT_THAT(commit.missing(), ElementsAre(0));
  EXPECT_THROW(commit.commit(), std::logic_error);
  const std::string zero = vote(0);
  commit.add(0, true, zero);
  commit.add(0, true, zero);  // the network may say things twice
  EXPECT_TRUE(commit.complete());
  EXPECT_FALSE(commit.failed()) << commit.why();
  EXPECT_THAT(verify(commit.commit().path).problems, IsEmpty());
  EXPECT_THAT(files::list(path), ElementsAre("step-00000010"));
}

TEST_F(Commits, aNoIsKeptWithItsReason) {
  Commit commit(path, 10, {1, 1}, 2);
  commit.add(0, true, vote(0));
  commit.add(1, false, "cannot write shard-00001.h5 (No space left on device)");
  EXPECT_TRUE(commit.complete());
  EXPECT_TRUE(commit.failed());
  EXPECT_EQ(commit.why(), "rank 1: cannot write shard-00001.h5 (No space left on device)");
  commit.drop();
  EXPECT_THAT(files::list(path), IsEmpty());
}

TEST_F(Commits, countsVotesOfAProgramOnItsOwnFiles) {
  const auto own = [](int files, int bytes) {
    return nlohmann::json{{"kind", "files"}, {"path", "/shared/mine"}, {"files", files}, {"bytes", bytes}}
        .dump();
  };
  Commit commit(path, 10, {1, 1}, 2);
  commit.add(1, true, own(0, 0));
  EXPECT_FALSE(commit.complete());
  commit.add(0, true, own(3, 1000));
  ASSERT_TRUE(commit.complete() && !commit.failed()) << commit.why();
  const Committed committed = commit.commit();
  EXPECT_TRUE(committed.path.empty());
  EXPECT_EQ(committed.note, "3 files, 1000 bytes, which the program has written below /shared/mine");
  EXPECT_THAT(files::list(path), IsEmpty()) << "they are the program's";

  Commit no(path, 10, {1, 1}, 2);
  no.add(0, true, own(1, 1));
  no.add(1, false, "no space left");
  EXPECT_EQ(no.why(), "rank 1: no space left");
  for (const bool first : {false, true}) {
    Commit mixed(path, 20, {1, 1}, 2);
    if (first) mixed.add(0, true, own(1, 1));
    mixed.add(1, true, vote(1, 20, {1, 1}));
    if (!first) mixed.add(0, true, own(1, 1));
    EXPECT_THAT(mixed.why(), HasSubstr("others have voted on"));
    mixed.drop();
  }
  for (const char* bad : {R"({"kind":"files"})", R"({"kind":"files","path":"a","files":-1,"bytes":1})",
                          R"({"kind":"files","path":7,"files":1,"bytes":1})"}) {
    Commit damaged(path, 10, {1, 1}, 1);
    damaged.add(0, true, bad);
    EXPECT_TRUE(damaged.failed()) << bad;
  }
}

TEST_F(Commits, refusesVotesThatDoNotFit) {
  const std::string zero = vote(0), one = vote(1);
  Facts other = some_facts(2);
  other.seed ^= 1;
  fs::remove_all(temporary_path(path, 10, {1, 1}));
  const std::string otherwise = vote(1, 10, {1, 1}, other);
  const std::string of_step_9 = vote(1, 9, {1, 1}), of_attempt_2 = vote(1, 10, {1, 2});

  const std::tuple<int, std::string, const char*> cases[] = {
      {1, "", "not JSON"},
      {1, "{}", "vote.schema_version is missing"},
      {1, std::string(1'000'000, '['), "nested too deeply"},
      {1, zero, "it is that of rank 0"},
      {2, one, "there is no such rank among 2"},
      {-1, one, "there is no such rank among 2"},
      {1, of_step_9, "it belongs to step-00000009.tmp-1-1"},
      {1, of_attempt_2, "it belongs to step-00000010.tmp-1-2"},
      {1, otherwise, "the ranks do not agree on the state"},
      {0, otherwise, "voted twice, and differently"},
  };
  for (const auto& [rank, payload, expected] : cases) {
    Commit commit(path, 10, {1, 1}, 2);
    commit.add(0, true, zero);
    commit.add(rank, true, payload);
    EXPECT_TRUE(commit.failed());
    EXPECT_THAT(commit.why(), HasSubstr(expected));
  }
}

/// What a writer wrote follows from the layout, and all of them have to have the same.
TEST_F(Commits, refusesWritersOfTwoLayouts) {
  WriterLayout other = layout;
  other.cuts[0] = {1, 60, 60};
  ShardWriter writer(path, 1, {1, 1}, whole.tensors, other, some_facts(2));
  Commit commit(path, 10, {1, 1}, 2);
  commit.add(0, true, vote(0));
  commit.add(1, true, write_shard(writer, whole, {10, 0, 0}));
  EXPECT_THAT(commit.why(), HasSubstr("the ranks do not agree on the state"));
}

TEST_F(Commits, refusesWhatIsNotWhole) {
  const std::string zero = vote(0), one = vote(1);
  auto too_few = nlohmann::ordered_json::parse(one), too_short = too_few;
  too_few["piece_digests"] = "0123456789abcdef";
  too_short["shard"]["bytes"] = too_short["shard"]["bytes"].get<std::int64_t>() - page_bytes;
  auto hole = nlohmann::ordered_json::parse(zero);
  hole["common"]["layout"]["cuts"][0] = {1, 49, 49};
  const std::tuple<std::string, std::string, const char*> cases[] = {
      {zero, too_few.dump(), "the vote of rank 1 is not usable (1 digests of 2 pieces)"},
      {zero, too_short.dump(), "cannot have"},
      {hole.dump(), one, "cut 0 of the layout leaves elements that are stored nowhere"},
  };
  for (const auto& [first, second, expected] : cases) {
    Commit commit(path, 10, {1, 1}, 2);
    commit.add(0, true, first);
    commit.add(1, true, second);
    ASSERT_FALSE(commit.failed()) << commit.why();
    try {
      commit.commit();
      ADD_FAILURE() << "committed a checkpoint with a hole: " << expected;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(expected));
    }
  }
  EXPECT_THAT(committed_steps(path), IsEmpty());
}

TEST_F(Commits, refusesAFileThatChangedOrWent) {
  for (const bool gone : {false, true}) {
    Commit commit = write_all_shards(path, whole, 10, {1, 1}, layout);
    const fs::path shard = temporary_path(path, 10, {1, 1}) / "shard-00001.h5";
    if (gone)
      fs::remove(shard);
    else
      fs::resize_file(shard, 100);
    EXPECT_THROW(commit.commit(), Error);
    commit.drop();
    EXPECT_THAT(files::list(path), IsEmpty());
  }
}

TEST_F(Commits, committingAgainIsHarmless) {
  Commit first = write_all_shards(path, whole, 10, {1, 1}, layout), second = first;
  first.commit();
  EXPECT_THAT(second.commit().note, HasSubstr("already committed"));  // the next leader, with the same votes
  EXPECT_TRUE(holds(committed_path(path, 10), whole.tensors, 10));
}

TEST_F(Commits, aLaterGenerationReplacesAnEarlierOne) {
  save(path, whole, 10, {1, 1}, layout);
  flip_bit(committed_path(path, 10) / "shard-00001.h5", 8 * 8300);  // why the step was done again
  EXPECT_THAT(save(path, whole, 10, {1, 2}, layout).note,
              HasSubstr("the older step-00000010 is put aside as step-00000010.replaced-1"));
  EXPECT_EQ(read_manifest(committed_path(path, 10)).generation, (Generation{1, 2}));
  EXPECT_THAT(verify(committed_path(path, 10)).problems, IsEmpty());
  EXPECT_THAT(files::list(path), ElementsAre("step-00000010", "step-00000010.replaced-1"));
  EXPECT_EQ(read_manifest(path / "step-00000010.replaced-1").generation, (Generation{1, 1}));
  save(path, whole, 10, {1, 3}, layout);
  EXPECT_THAT(files::list(path),
              ElementsAre("step-00000010", "step-00000010.replaced-1", "step-00000010.replaced-2"));
  Whole later(whole.tensors, 20);
  save(path, later, 20, {1, 3}, layout);
  EXPECT_THAT(files::list(path), ElementsAre("step-00000010", "step-00000020")) << "a later one is durable";
}

/// Neither is what cannot be read now counted as damaged, nor ever removed.
TEST_F(Commits, whatCannotBeReadIsPutAsideAndStays) {
  save(path, whole, 10, {5, 5}, layout);
  const fs::path shard = committed_path(path, 10) / "shard-00001.h5", elsewhere = path / "elsewhere";
  fs::rename(shard, elsewhere);
  save(path, whole, 10, {1, 1}, layout);
  EXPECT_TRUE(holds(committed_path(path, 10), whole.tensors, 10));
  Whole later(whole.tensors, 20);
  save(path, later, 20, {1, 1}, layout);
  const fs::path aside = path / "step-00000010.replaced-1";
  ASSERT_TRUE(fs::exists(aside)) << "a later one is durable, but nobody knows what this one is";
  fs::rename(elsewhere, aside / "shard-00001.h5");
  EXPECT_TRUE(holds(aside, whole.tensors, 10));
  EXPECT_EQ(read_manifest(aside).generation, (Generation{5, 5}));
}

/// Removing does not decide about a checkpoint: what cannot be removed costs none.
TEST_F(Commits, removesNothingItself) {
  for (const std::int64_t step : {10, 20, 30}) {
    Whole at_step(whole.tensors, step);
    write_all_shards(path, at_step, step, {1, 1}, layout).commit();
  }
  EXPECT_THAT(committed_steps(path), ElementsAre(30, 20, 10));
  EXPECT_THAT(tidy(path, {1, 0}, {1, 1}, 30), ElementsAre(20, 10));
}

TEST_F(Commits, anEarlierGenerationComesTooLate) {
  save(path, whole, 10, {1, 2}, layout);
  EXPECT_THAT(save(path, whole, 10, {1, 1}, layout).note, HasSubstr("already committed"));
  EXPECT_EQ(read_manifest(committed_path(path, 10)).generation, (Generation{1, 2}));
  EXPECT_THAT(files::list(path), ElementsAre("step-00000010"));
}

TEST_F(Commits, aDamagedOneIsReplacedWhateverItsGeneration) {
  save(path, whole, 10, {5, 5}, layout);
  fs::resize_file(committed_path(path, 10) / "shard-00000.h5", 50);
  save(path, whole, 10, {1, 1}, layout);
  EXPECT_TRUE(holds(committed_path(path, 10), whole.tensors, 10));
}

/// An attempt that everybody takes for dead commits at the same moment as its successor: one of them may
/// fail, but the step is there afterwards, and whole.
TEST_F(Commits, twoGenerationsMayRace) {
  int both = 0;
  for (int round = 0; round < 30; ++round) {
    const Folder place;
    std::vector<Commit> commits;
    for (const int attempt : {1, 2})
      commits.push_back(write_all_shards(place.path(), whole, 10, {1, attempt}, layout));
    std::atomic<int> waiting = 2, committed = 0;
    {
      std::vector<std::jthread> leaders;
      for (Commit& commit : commits)
        leaders.emplace_back([&] {
          for (--waiting; waiting > 0;) {
          }
          try {
            commit.commit();
            ++committed;
          } catch (const Error&) {
            commit.drop();
          }
        });
    }
    EXPECT_GE(committed, 1);
    both += committed == 2;
    sweep(place.path(), {1, 3});
    auto names = files::list(place.path());
    std::erase(names, "step-00000010.replaced-1");  // of the one that was first, when both committed
    EXPECT_THAT(names, ElementsAre("step-00000010"));
    EXPECT_TRUE(holds(committed_path(place.path(), 10), whole.tensors, 10));
  }
  RecordProperty("rounds_in_which_both_committed", both);
}

TEST_F(Commits, keepsTheLastFewAndSweepsDeadGenerations) {
  fs::create_directories(path / "step-00000005.tmp-1-0" / "x");
  for (std::int64_t step : {10, 20, 30}) {
    Whole at_step(whole.tensors, step);
    write_all_shards(path, at_step, step, {1, 1}, layout).commit();
    EXPECT_EQ(tidy(path, {2, 0}, {1, 1}, step),
              step == 30 ? std::vector<std::int64_t>{10} : std::vector<std::int64_t>{});
  }
  EXPECT_THAT(files::list(path), ElementsAre("step-00000020", "step-00000030"));
}

TEST_F(Commits, twoAttemptsNeverShareAFolder) {
  vote(1);
  EXPECT_THROW(vote(1), Error);  // the same attempt, twice: O_EXCL
  EXPECT_NO_THROW(vote(1, 10, {1, 2}));
}

}  // namespace
}  // namespace holdfast::checkpoint

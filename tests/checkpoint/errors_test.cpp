// Every call of a save, a commit, a restore and a takeover that concerns the folder of checkpoints fails
// once, with every error that storage may answer. No committed byte disappears, nothing sound is taken for
// damaged, and nobody goes on from a lower step than he could.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "checkpoint/index/files_check.hpp"
#include "checkpoint/index/lease.hpp"
#include "checkpoint/verify/verify.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/support/traced.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using test::run_failing;
using test::Traced;
using ::testing::IsEmpty;

/// What the child ends with.
constexpr int good = 0, not_saved = 3, unknown = 4, damaged = 5, lower = 6, nothing = 7, wrong = 8;

struct Errors : ::testing::TestWithParam<int> {
  const std::vector<LogicalTensor> tensors = vectors({40'000, 33, 1});
  const WriterLayout layout = even_layout(tensors, 2);
  WriteOptions options = {.threads = 1, .chunk_bytes = block_bytes};

  void prepare(const fs::path& path) {
    for (const std::int64_t step : {10, 15}) {
      Whole whole(tensors, step);
      save(path, whole, step, {1, 1}, layout, 2);
    }
  }
  /// A save of step 20 by two ranks, its commit, and what retention does after it.
  int save_and_commit(const fs::path& path, Generation generation) {
    Whole whole(tensors, 20);
    try {
      Commit commit = write_all_shards(path, whole, 20, generation, layout, options);
      if (commit.failed()) return commit.drop(), not_saved;
      try {
        commit.commit();
      } catch (const Error&) {
        return commit.drop(), not_saved;
      }
    } catch (const Error&) {
      return not_saved;
    }
    try {
      tidy(path, {2, 0}, generation, 20);
    } catch (const Error&) {  // the next one does it
    }
    return good;
  }
  int restore(const fs::path& path, std::int64_t newest) {
    try {
      const auto found = newest_sound(path);
      if (!found) return nothing;
      if (found->step != newest) return lower;
      return holds(found->path, tensors, newest) ? good : wrong;
    } catch (const Damaged& e) {
      std::cerr << e.what() << '\n';
      return damaged;
    } catch (const Error&) {
      return unknown;
    }
  }
  /// What is committed is whole; 15 or 20 is the newest, and while it is 15, 10 is there, too.
  std::int64_t check_what_is_there(const fs::path& path, const std::string& where) {
    const auto steps = committed_steps(path);
    for (const std::int64_t step : steps) {
      EXPECT_TRUE(holds(committed_path(path, step), tensors, step)) << where << ": step " << step;
      EXPECT_THAT(verify(committed_path(path, step)).problems, IsEmpty()) << where << ": step " << step;
    }
    EXPECT_GE(steps.size(), 2u) << where;
    EXPECT_TRUE(steps.front() == 15 || steps.front() == 20) << where;
    return steps.front();
  }
};

TEST_P(Errors, aSaveThatMeetsOneHurtsNothing) {
  int at = 0, failures = 0;
  for (;; ++at) {
    const Folder folder;
    prepare(folder.path());
    const Traced traced = run_failing(
        folder.path(),
        [&] {
          return save_and_commit(folder.path(), {1, 1});
        },
        at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    const std::string where = "call " + std::to_string(at) + " (" + traced.struck + ")";
    ASSERT_TRUE(traced.exit_code == good || traced.exit_code == not_saved)
        << where << ": " << traced.exit_code;
    const std::int64_t newest = check_what_is_there(folder.path(), where);
    EXPECT_TRUE(traced.exit_code == not_saved || newest == 20) << where;
    if (traced.struck.empty()) break;
    failures += traced.exit_code == not_saved;
    // A later leader saves it again.
    EXPECT_EQ(save_and_commit(folder.path(), {2, 2}), good) << where;
    EXPECT_EQ(check_what_is_there(folder.path(), where), 20) << where;
  }
  EXPECT_GT(at, 60);
  EXPECT_GT(failures, 15);
}

TEST_P(Errors, aRestoreThatMeetsOneKnowsNothingOrTheNewest) {
  const Folder folder;
  prepare(folder.path());
  ASSERT_EQ(save_and_commit(folder.path(), {1, 1}), good);
  int at = 0, unsure = 0;
  for (;; ++at) {
    const Traced traced = run_failing(
        folder.path(), [&] { return restore(folder.path(), 20); }, at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    const std::string where = "call " + std::to_string(at) + " (" + traced.struck + ")";
    EXPECT_TRUE(traced.exit_code == good || traced.exit_code == unknown) << where << ": " << traced.exit_code;
    if (traced.struck.empty()) break;
    unsure += traced.exit_code == unknown;
  }
  EXPECT_GT(at, 10);
  EXPECT_GT(unsure, 8);
}

/// Of a reader that has died: its lease expires later than any test ends. No thread of it may run beside
/// run_failing(), which forks.
void leave_lease(const fs::path& step) {
  const pid_t reader = ::fork();
  if (reader == 0) {
    [[maybe_unused]] const auto* held = new Lease(step);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(reader, nullptr, 0), reader);
}

/// Step 10 is read through a lease, and retention would remove it.
TEST_P(Errors, retentionThatMeetsOneRemovesNothingThatIsRead) {
  for (int at = 0;; ++at) {
    const Folder folder;
    prepare(folder.path());
    Whole whole(tensors, 20);
    write_all_shards(folder.path(), whole, 20, {1, 1}, layout, options).commit();
    leave_lease(committed_path(folder.path(), 10));
    const Traced traced = run_failing(
        folder.path(),
        [&] {
          try {
            tidy(folder.path(), {1, 0}, {1, 1}, 20);
          } catch (const Error&) {
          }
          return good;
        },
        at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    const std::string where = "call " + std::to_string(at) + " (" + traced.struck + ")";
    EXPECT_TRUE(holds(committed_path(folder.path(), 10), tensors, 10)) << where;
    EXPECT_TRUE(holds(committed_path(folder.path(), 20), tensors, 20)) << where;
    if (traced.struck.empty()) break;
  }
}

/// Of one rank of another program: it has written `a` and `b`.
void save_files(const fs::path& checkpoints, const fs::path& own, std::int64_t step) {
  fs::create_directories(own);
  std::string list;
  for (const char* name : {"a", "b"}) {
    write_file(own / name, "abc");
    list += fmt::format(R"({}["{}",3,"{}"])", list.empty() ? "" : ",", name, file_digest(own / name));
  }
  Commit commit(checkpoints, step, {1, 1}, 1);
  commit.add(
      0, true,
      fmt::format(R"({{"kind":"files","path":"{}","files":2,"bytes":6,"list":[{}]}})", own.string(), list));
  commit.commit();
}

/// A file of step 10 is somebody's by now.
TEST_P(Errors, retentionOfFilesThatMeetsOneRemovesNothingThatWasWrittenAgain) {
  for (int at = 0;; ++at) {
    const Folder folder;
    const fs::path own = folder.path() / "own", checkpoints = folder.path() / "checkpoints";
    for (const char* step : {"10", "20"}) save_files(checkpoints, own / step, std::stoi(step));
    write_file(own / "10/b", "another");
    fs::last_write_time(own / "10/b", fs::file_time_type::clock::now() + std::chrono::hours(1));
    const Traced traced = run_failing(
        own,
        [&] {
          try {
            tidy(checkpoints, {1, 0, 1, {folder.path()}}, {1, 1}, 20);
          } catch (const Error&) {
          }
          return good;
        },
        at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    const std::string where = "call " + std::to_string(at) + " (" + traced.struck + ")";
    EXPECT_TRUE(fs::exists(own / "10/b")) << where;
    EXPECT_THAT(verify(committed_path(checkpoints, 20)).problems, IsEmpty()) << where;
    if (traced.struck.empty()) {
      EXPECT_FALSE(fs::exists(own / "10/a"));
      break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, Errors,
                         ::testing::Values(EIO, ESTALE, EACCES, ENOSPC, EDQUOT, ETIMEDOUT, ELOOP),
                         [](const auto& suite) { return std::string(::strerrorname_np(suite.param)); });

}  // namespace
}  // namespace holdfast::checkpoint

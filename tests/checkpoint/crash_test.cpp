// A save is stopped, or told that a call failed, at every system call that changes files. What was durable
// stays durable.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "checkpoint/verify/verify.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/support/traced.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using namespace holdfast::test;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int durable = 0, not_saved = 3;  // what the saving child ends with

struct Crash : ::testing::Test {
  const std::vector<LogicalTensor> tensors = vectors({40'000, 33, 1});  // two writes for each shard
  const WriterLayout layout = even_layout(tensors, 2);
  Whole at_20{tensors, 20};
  WriteOptions options = {.threads = 1, .chunk_bytes = block_bytes};

  /// Steps 10 and 15 are durable.
  void prepare(const fs::path& path) {
    for (std::int64_t step : {10, 15}) {
      Whole whole(tensors, step);
      save(path, whole, step, {1, 1}, layout, 2);
    }
  }
  /// Everything of a save of step 20 by two ranks that is not reading: returns how it ended.
  std::function<int()> saving(const fs::path& path, Generation generation = {1, 1}) {
    auto writers = std::make_shared<std::vector<ShardWriter>>();
    for (int rank = 0; rank < 2; ++rank)
      writers->emplace_back(path, rank, generation, tensors, layout, some_facts(2), options);
    return [this, path, generation, writers] {
      Commit commit(path, 20, generation, 2);
      for (int rank = 0; rank < 2; ++rank) {
        try {
          commit.add(rank, true, write_shard((*writers)[rank], at_20, {20, 0, 0}));
        } catch (const Error& e) {
          commit.add(rank, false, e.what());
        }
      }
      try {
        if (commit.failed()) throw Error(Exit::runtime, commit.why());
        commit.commit();
      } catch (const Error&) {
        commit.drop();
        return not_saved;
      }
      try {
        tidy(path, {2, 0}, generation, 20);
      } catch (const Error&) {  // the next one does it
      }
      return durable;
    };
  }
  /// Whatever has a committed name is whole and right; the newest sound step is 15 or 20. Returns it.
  std::int64_t check_what_is_there(const fs::path& path, const std::string& where) {
    for (const std::int64_t step : committed_steps(path)) {
      EXPECT_TRUE(holds(committed_path(path, step), tensors, step)) << where << ": step " << step;
      EXPECT_THAT(verify(committed_path(path, step)).problems, IsEmpty()) << where << ": step " << step;
    }
    const auto newest = newest_sound(path);
    const std::int64_t step = newest ? newest->step : -1;
    EXPECT_TRUE(step == 15 || step == 20) << where << ": " << step;
    return step;
  }
  /// The next attempt can save step 20 (again). Nothing of the dead one stays but what was step 20 before,
  /// and that no longer than until a later step is durable.
  void check_next_attempt(const fs::path& path, const std::string& where) {
    sweep(path, {2, 2});
    EXPECT_EQ(saving(path, {2, 2})(), durable) << where;
    EXPECT_EQ(check_what_is_there(path, where), 20);
    auto names = files::list(path);
    std::erase_if(names, [](const auto& name) { return parse_name(name).kind == Name::Kind::replaced; });
    EXPECT_THAT(names, ElementsAre("step-00000015", "step-00000020")) << where;
    Whole later(tensors, 25);
    save(path, later, 25, {2, 2}, layout, 2);
    EXPECT_THAT(files::list(path), ElementsAre("step-00000020", "step-00000025")) << where;
  }
};

TEST_F(Crash, killedAtEveryCall) {
  int saved_before_death = 0, at = 0;
  for (;; ++at) {
    const Folder folder;
    prepare(folder.path());
    const Traced traced = run_traced(saving(folder.path()), at, Fault::kill);
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    if (!traced.killed) {
      EXPECT_EQ(traced.exit_code, durable);
      break;
    }
    const std::string where = "killed at call " + std::to_string(at) + " (" + traced.struck + ")";
    saved_before_death += check_what_is_there(folder.path(), where) == 20;
    check_next_attempt(folder.path(), where);
  }
  std::cout << at << " crash points, " << saved_before_death << " of them after the commit\n";
  EXPECT_GT(at, 30);
  EXPECT_GT(saved_before_death, 3);
}

TEST_F(Crash, killedWhileReplacingADamagedStep) {
  for (int at = 0;; ++at) {
    const Folder folder;
    prepare(folder.path());
    EXPECT_EQ(saving(folder.path())(), durable);
    flip_bit(committed_path(folder.path(), 20) / "shard-00001.h5", 8 * 8200);
    const Traced traced = run_traced(saving(folder.path(), {1, 2}), at, Fault::kill);
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    if (!traced.killed) break;
    const std::string where = "killed at call " + std::to_string(at) + " (" + traced.struck + ")";
    EXPECT_TRUE(holds(committed_path(folder.path(), 15), tensors, 15)) << where;
    EXPECT_EQ(committed_steps(folder.path()).front(), 20) << where;  // the old or the new, never neither
    check_next_attempt(folder.path(), where);
  }
}

struct FailedCall : Crash, ::testing::WithParamInterface<Fault> {};

TEST_P(FailedCall, neverHurtsWhatIsDurable) {
  int failures = 0;
  for (int at = 0;; ++at) {
    const Folder folder;
    prepare(folder.path());
    const Traced traced = run_traced(saving(folder.path()), at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    const std::string where = "failed call " + std::to_string(at) + " (" + traced.struck + ")";
    ASSERT_TRUE(traced.exit_code == durable || traced.exit_code == not_saved)
        << where << ": " << traced.exit_code;
    const std::int64_t newest = check_what_is_there(folder.path(), where);
    EXPECT_TRUE(traced.exit_code == not_saved || newest == 20) << where;
    EXPECT_TRUE(traced.exit_code == durable || GetParam() != Fault::half_write) << where;
    if (traced.struck.empty()) break;  // past the last call
    failures += traced.exit_code == not_saved;
    check_next_attempt(folder.path(), where);
  }
  EXPECT_EQ(failures > 10, GetParam() != Fault::half_write);
}

INSTANTIATE_TEST_SUITE_P(Crash, FailedCall,
                         ::testing::Values(Fault::io_error, Fault::no_space, Fault::half_write),
                         [](const auto& suite) {
                           return suite.param == Fault::io_error   ? "ioError"
                                  : suite.param == Fault::no_space ? "noSpace"
                                                                   : "halfWrite";
                         });

TEST_F(Crash, aFileThatCannotBeReadBackIsNotSaved) {
  options.read_back = ReadBack::full;
  int at = 0;
  for (;; ++at) {
    const Folder folder;
    prepare(folder.path());
    const Traced traced = run_traced(saving(folder.path()), at, Fault::read_error);
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    if (traced.struck.empty()) break;
    EXPECT_EQ(traced.exit_code, not_saved) << at;
    EXPECT_EQ(check_what_is_there(folder.path(), "read " + std::to_string(at)), 15);
  }
  EXPECT_GE(at, 4);  // the front and the blocks of two shards
}

/// Runs `body` in a child and returns its exit code.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Crash, aFullDiskIsAnErrorAndLosesNothing) {
  const int code = in_child([&] {
    const Folder mount;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", mount.path().c_str(), "tmpfs", 0, "size=1000k") != 0)
      return 77;
    const fs::path path = mount.path() / "checkpoints";
    prepare(path);
    Whole large(vectors({60'000}), 20);
    const WriterLayout one = even_layout(large.tensors, 1);
    ShardWriter writer(path, 0, {1, 1}, large.tensors, one, some_facts(1));
    write_file(mount.path() / "ballast", std::string(450'000, 'x'));
    bool refused = false;
    try {
      write_shard(writer, large, {20, 0, 0});
    } catch (const Error& e) {
      const std::string what = e.what();
      refused = what.find("there is no room for a checkpoint") != std::string::npos &&
                what.find(" KiB to be safe") != std::string::npos;
      if (!refused) std::cerr << what << '\n';
    }
    const bool no_shard_left = !fs::exists(temporary_path(path, 20, {1, 1}));
    const bool intact = check_what_is_there(path, "full disk") == 15;
    fs::remove(mount.path() / "ballast");
    Commit(path, 20, {1, 1}, 1).drop();
    const bool works_again = saving(path)() == durable;
    ::umount2(mount.path().c_str(), MNT_DETACH);
    return refused && no_shard_left && intact && works_again && !HasFailure() ? 0 : 1;
  });
  if (code == 77) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(code, 0);
}

TEST_F(Crash, aQuotaIsAnErrorAndLosesNothing) {
  const Folder folder;
  prepare(folder.path());
  Whole large(vectors({60'000}), 20);
  const WriterLayout one = even_layout(large.tensors, 1);
  ShardWriter writer(folder.path(), 0, {1, 1}, large.tensors, one, some_facts(1));
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{100'000, 100'000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              try {
                write_shard(writer, large, {20, 0, 0});
              } catch (const Error&) {
                return 0;
              }
              return 2;
            }),
            0);
  EXPECT_EQ(check_what_is_there(folder.path(), "quota"), 15);
  check_next_attempt(folder.path(), "quota");
}

}  // namespace
}  // namespace holdfast::checkpoint

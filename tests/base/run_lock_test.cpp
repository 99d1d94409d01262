#include "src/base/run_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "src/base/error.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast {
namespace {

struct RunLock : testing::Test {
  test::Scratch scratch;
  const RunDir run{scratch.path()};
};

/// In a child whose flock() fails with `error`, as on a file system without locks. Returns what `look` does.
template <class Look>
int where_flock_fails(int error, Look look) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<sock_filter, 4> filter{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the system call
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{filter.size(), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      ::_exit(99);
    ::_exit(look());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(RunLock, IsHeldByOneProcess) {
  EXPECT_FALSE(is_locked(run)) << "there is no file yet";
  EXPECT_FALSE(files::exists_or_fail(run.bare_lock())) << "a look makes none";
  {
    const auto lock = lock_run(run);
    ASSERT_TRUE(lock);
    EXPECT_TRUE(is_locked(run));
    EXPECT_FALSE(lock_run(run));
  }
  EXPECT_FALSE(is_locked(run));
  EXPECT_TRUE(lock_run(run));
}

TEST_F(RunLock, ThreeAnswersWhereFlockFails) {
  ASSERT_TRUE(lock_run(run));
  const auto locks = [&] {
    try {
      return lock_run(run) ? 0 : 1;
    } catch (const Error& error) {
      return std::string(error.problem()).starts_with("cannot lock ") ? 2 : 3;
    }
  };
  const auto looks = [&] {
    try {
      return is_locked(run) ? 1 : 0;
    } catch (const Error&) {
      return 2;
    }
  };
  EXPECT_EQ(where_flock_fails(ENOSYS, locks), 2) << "Lustre without -o flock";
  EXPECT_EQ(where_flock_fails(ENOSYS, looks), 0) << "nobody can hold it there";
  EXPECT_EQ(where_flock_fails(ENOLCK, locks), 2) << "NFS, whose lock server is away";
  EXPECT_EQ(where_flock_fails(ENOLCK, looks), 2) << "it is unknown";
}

}  // namespace
}  // namespace holdfast

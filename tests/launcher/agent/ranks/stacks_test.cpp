// The stacks of real processes that hang: in a futex, in a loop, stopped; and of processes that cannot
// answer.
#include "launcher/agent/ranks/stacks.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

#ifdef __SANITIZE_THREAD__
constexpr const char* threads = ", 3 threads";  // one is the sanitizer's
#else
constexpr const char* threads = ", 2 threads";
#endif

class StacksTest : public testing::Test {
 protected:
  ~StacksTest() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  /// Waits until it reports that it hangs.
  void start(const std::string& how) {
    pid_ = spawn({.argv = {STACK_TARGET, how}, .environment = {}, .folder = {}, .output = log_});
    for (const auto limit = Deadline::in(std::chrono::seconds(10)); !limit.passed();) {
      if (std::filesystem::exists(log_) && files::read_text(log_).starts_with("ready")) return;
      std::this_thread::sleep_for(Millis(5));
    }
    FAIL() << "it did not start";
  }
  bool lives() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  std::string stacks() const { return stacks_of(pid_, log_); }

  control::test::Folder folder_;
  const std::filesystem::path log_ = folder_.path / "rank.log";
  pid_t pid_ = 0;
};

TEST_F(StacksTest, ThreadsThatWaitNameTheCallAndTheFunction) {
  start("futex");
  for (int again = 0; again < 2; ++again) {  // it lives on, and can be asked again
    const std::string text = stacks();
    EXPECT_THAT(text, HasSubstr(threads)) << text;
    EXPECT_THAT(text, HasSubstr("waits in futex")) << text;
    EXPECT_THAT(text, HasSubstr("stack_target: stack_target::wait_for_ever()+0x")) << text;
    EXPECT_THAT(text, HasSubstr(": main+0x")) << text;
    EXPECT_THAT(text, Not(HasSubstr("---"))) << text;
  }
  EXPECT_TRUE(lives());
}

TEST_F(StacksTest, ALoopShowsWhereItTurns) {
  start("loop");
  const std::string text = stacks();
  EXPECT_THAT(text, AllOf(HasSubstr(" runs"), HasSubstr("stack_target: stack_target::turn_for_ever()+0x")))
      << text;
  EXPECT_TRUE(lives());
}

TEST_F(StacksTest, AStoppedProcessIsNotAskedAndTheKernelSpeaks) {
  start("futex");
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  const std::string text = stacks();
  EXPECT_THAT(
      text, AllOf(HasSubstr("is stopped"), HasSubstr("0.00 s of CPU time"), Not(HasSubstr("wait_for_ever"))));
  ::kill(pid_, SIGCONT);
  EXPECT_THAT(stacks(), HasSubstr("wait_for_ever")) << "it goes on";
}

TEST_F(StacksTest, AProgramThatDoesNotKnowTheSignalIsLeftAlone) {
  start("plain");
  EXPECT_THAT(stacks(), AllOf(HasSubstr("waits in futex"), Not(HasSubstr("wait_for_ever"))));
  EXPECT_TRUE(lives());
}

TEST_F(StacksTest, WithoutALogThereAreNoCallsAndAProcessThatIsGoneIsSaid) {
  start("futex");
  EXPECT_THAT(stacks_of(pid_, folder_.path / "none"),
              AllOf(HasSubstr("waits in futex"), Not(HasSubstr("for_ever"))));
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  EXPECT_THAT(stacks(), HasSubstr("is gone"));
  pid_ = 0;
}

TEST_F(StacksTest, BesideTheLoopAndNotAfterTheHandleHasGone) {
  start("futex");
  control::test::LoopThread loop;
  std::string text;
  control::Loop::Handle handle = loop.call(
      [&] { return dump_stacks(loop.loop, pid_, log_, [&](std::string said) { text = std::move(said); }); });
  EXPECT_TRUE(loop.until([&] { return !text.empty(); }));
  EXPECT_THAT(text, HasSubstr("wait_for_ever"));

  bool called = false;
  handle = loop.call(
      [&] { return dump_stacks(loop.loop, pid_, log_, [&](const std::string&) { called = true; }); });
  handle.reset();
  std::this_thread::sleep_for(Millis(600));  // it takes half as long
  loop.settle();
  EXPECT_FALSE(called);
}

/// The state of a process is that of its first thread, which may have ended.
TEST_F(StacksTest, AProcessLivesWhileAThreadOfItDoes) {
  start("threads");
  const auto first_thread = [this] { return files::read_text(fmt::format("/proc/{}/stat", pid_)); };
  for (const auto limit = Deadline::in(std::chrono::seconds(10));
       first_thread().find(") Z ") == std::string::npos;)
    ASSERT_FALSE(limit.passed()) << first_thread();
  const auto there = [this] {
    const auto found = processes_of(RunDir{folder_.path}, "n1", ::getpid());  // as if this were the guardian
    return std::ranges::any_of(found, [this](const RunProcess& p) { return p.pid == pid_; });
  };
  EXPECT_TRUE(there());
  ::kill(pid_, SIGKILL);
  for (const auto limit = Deadline::in(std::chrono::seconds(10)); there();) ASSERT_FALSE(limit.passed());
}

TEST_F(StacksTest, AProcessThatWaitsInTheKernelIsNamed) {
  start("kernel");
  RunProcess here, there;
  here.pid = ::getpid();
  there.pid = pid_;
  there.rank = 3;
  std::string text;
  for (const auto limit = Deadline::in(std::chrono::seconds(10)); text.find("kernel") == std::string::npos;) {
    ASSERT_FALSE(limit.passed()) << text;
    text = why_left({here, there});
  }
  EXPECT_THAT(text, AllOf(HasSubstr("2 processes have been killed and have not ended; "),
                          HasSubstr(fmt::format("rank 3 (process {}) waits in the kernel (state D)", pid_))));
}

}  // namespace
}  // namespace holdfast::launcher

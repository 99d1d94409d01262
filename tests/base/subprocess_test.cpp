#include "src/base/subprocess.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::chrono::seconds run_limit{30};

TEST(Subprocess, APathNamesPlaces) {
  EXPECT_THAT(places_in("/a:b::/c:", "x"), ElementsAre("/a/x", "b/x", "./x", "/c/x", "./x"));
  EXPECT_THAT(places_in("/a", "./x"), ElementsAre("./x"));
  EXPECT_THAT(places_in("", "x"), ElementsAre());
}

TEST(Subprocess, AProgramIsLookedForInThePathThatItGets) {
  const test::Scratch scratch;
  const fs::path program = scratch.write("bin/trainer", "#!/bin/sh\necho it runs\n");
  fs::permissions(program, fs::perms::owner_all);
  scratch.write("text/trainer", "no program");
  Command command;
  command.argv = {"trainer"};
  const auto out_with = [&](const std::string& path) {
    command.environment = {"A=b", "PATH=" + path};
    return run(command, run_limit).out;
  };
  const std::string bin = (scratch.path() / "bin").string(), text = (scratch.path() / "text").string();
  EXPECT_EQ(out_with(bin), "it runs\n");
  EXPECT_EQ(out_with("/nowhere:" + text + ":" + bin), "it runs\n") << "what is no program is passed over";
  EXPECT_THAT(test::refusal_of([&] { out_with("/usr/bin"); }).text, HasSubstr("No such file"));
  EXPECT_THAT(test::refusal_of([&] { out_with(text + ":/nowhere"); }).text, HasSubstr("Permission denied"));
  command.folder = scratch.path();
  EXPECT_EQ(out_with("bin"), "it runs\n") << "from the folder in which it works";
}

TEST(Subprocess, WithoutAPathOfItsOwnThatOfThisProcessCounts) {
  Command command;
  command.argv = {"true"};
  EXPECT_EQ(run(command, run_limit).status, 0);
  command.environment = {"A=b"};
  EXPECT_EQ(run(command, run_limit).status, 0);
}

/// Opening its pipe for writing waits until somebody reads it, as a file system that hangs would.
class HangingOutput : public testing::Test {
 protected:
  HangingOutput() {
    if (::mkfifo(pipe_.c_str(), 0600) != 0) throw system_error("cannot make a pipe", errno);
    command_.argv = {"sleep", "100"};
    command_.output = pipe_;
  }
  bool waits(const Launched& process) {
    pollfd report{process.report.get(), POLLIN, 0};
    return ::poll(&report, 1, 0) == 0;
  }
  const test::Scratch scratch_;
  const fs::path pipe_ = scratch_.path() / "output";
  Command command_;
};

TEST_F(HangingOutput, KeepsAProcessWaitingButNotItsParent) {
  const Launched process = launch(command_);
  EXPECT_TRUE(waits(process));
  const files::Fd reader(::open(pipe_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(why_not_run(process.report.get(), "sleep"));
  EXPECT_EQ(files::read_text("/proc/" + std::to_string(process.pid) + "/comm"), "sleep\n");
  ::kill(process.pid, SIGKILL);
  ::waitpid(process.pid, nullptr, 0);
}

TEST_F(HangingOutput, IsNotALink) {
  command_.output = scratch_.path() / "link";
  fs::create_symlink(scratch_.path() / "elsewhere", command_.output);
  const Launched process = launch(command_);
  const auto why = why_not_run(process.report.get(), "sleep");
  ASSERT_TRUE(why);
  EXPECT_NE(std::string(why->what()).find("symbolic link"), std::string::npos) << why->what();
  EXPECT_FALSE(fs::exists(scratch_.path() / "elsewhere"));
  ::waitpid(process.pid, nullptr, 0);
}

TEST_F(HangingOutput, AProcessThatWaitsHoldsNothingOfItsParent) {
  const files::Fd lock(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Launched process = launch(command_);
  const fs::path descriptors = "/proc/" + std::to_string(process.pid) + "/fd";
  const auto held = [&] {
    std::size_t others = 0;
    for (const auto& name : files::list(descriptors)) others += std::stoi(name) > 2;
    return others;
  };
  for (const auto limit = Deadline::in(run_limit); held() > 1 && !limit.passed();) ::usleep(1000);
  EXPECT_EQ(held(), 1u) << "the pipe by which it reports, and not its parent's files";
  ::kill(process.pid, SIGKILL);
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  EXPECT_EQ(exit_status(status), 128 + SIGKILL) << "it can be ended while it waits";
  EXPECT_FALSE(why_not_run(process.report.get(), "sleep"));
}

TEST_F(HangingOutput, DoesNotOutlastALimit) {
  EXPECT_TRUE(run(command_, std::chrono::milliseconds(100)).timed_out);
}

TEST(Descriptors, AreClosedWithoutCloseRangeToo) {
  int ends[2], more[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC) | ::pipe2(more, O_CLOEXEC), 0);
  const files::Fd reader(ends[0]), writer(ends[1]), other(more[0]), another(more[1]);
  for (const auto close : {close_inherited, close_inherited_by_list}) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      close(writer.get());
      bool as_wanted = ::fcntl(writer.get(), F_GETFD) >= 0 && ::fcntl(2, F_GETFD) >= 0;
      for (int fd = 3; fd < 200; ++fd)
        as_wanted = as_wanted && (fd == writer.get() || ::fcntl(fd, F_GETFD) < 0);
      ::_exit(as_wanted ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(Descriptors, ProgramsGetTheLimitThatWasThereBeforeItWasRaised) {
  const rlimit before = first_descriptor_limit();
  raise_descriptor_limit();
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  Command command;
  command.argv = {"sh", "-c", "ulimit -S -n"};
  EXPECT_EQ(run(command, run_limit).out, std::to_string(before.rlim_cur) + "\n");
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Subprocess, SaysWhatIsMissing) {
  const test::Scratch scratch;
  const fs::path program = scratch.write("trainer", "#! /gone/bin/python3 -u\n");
  fs::permissions(program, fs::perms::owner_all);
  const auto why_not = [](const Command& command) {
    return test::refusal_of([&] { run(command, run_limit); }).text;
  };
  Command command;
  command.argv = {"true"};
  command.folder = scratch.path() / "away";
  EXPECT_THAT(why_not(command), HasSubstr("cannot enter the working directory " + command.folder.string() +
                                          " (No such file or directory)"));
  command.folder.clear();
  command.output = scratch.path() / "away" / "log";
  EXPECT_THAT(why_not(command), HasSubstr("cannot write to " + command.output.string() + " (No such"));
  command.output.clear();
  command.argv = {program.string()};
  EXPECT_THAT(why_not(command), HasSubstr("cannot start " + program.string() +
                                          ": its interpreter is /gone/bin/python3 (No such"));
  command.argv = {(scratch.path() / "gone").string()};
  EXPECT_THAT(why_not(command), HasSubstr("cannot start " + command.argv.front() + " (No such"));
}

TEST(Subprocess, LowPriorityIsTheLowest) {
  Command command;
  command.argv = {"nice"};
  command.low_priority = true;
  EXPECT_EQ(run(command, run_limit).out, "19\n");
}

}  // namespace
}  // namespace holdfast

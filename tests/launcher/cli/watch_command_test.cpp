// `holdfast watch` in a terminal of its own: what it shows, and how it leaves the terminal.
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/support/hung_file.hpp"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WatchCommand : public ::testing::Test {
 protected:
  WatchCommand() {
    scratch.write("run/config.toml", "[run]\nname = \"seen\"\n[train]\nsteps = 100\n");
    scratch.write("run/metrics.jsonl", "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":2.25}\n");
    files::fs::create_directories(scratch.path() / "run/events");
  }
  ~WatchCommand() override {
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (terminal >= 0) ::close(terminal);
  }

  void start(const char* no_colour = "") {
    winsize size{24, 80, 0, 0};
    child = ::forkpty(&terminal, nullptr, nullptr, &size);
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C", 1);
      ::setenv("NO_COLOR", no_colour, 1);
      ::execl(HOLDFAST_PROGRAM, "holdfast", "watch", (scratch.path() / "run").c_str(), nullptr);
      ::_exit(127);
    }
  }
  /// Reads until `text` was shown; false: it was not within 30 s.
  bool shows(const std::string& text) {
    const auto deadline = Deadline::in(std::chrono::seconds(30));
    while (out.find(text, seen) == std::string::npos) {
      pollfd source{terminal, POLLIN, 0};
      if (deadline.passed() || ::poll(&source, 1, deadline.left_ms()) <= 0) return false;
      std::array<char, 4096> bytes{};
      const ssize_t got = ::read(terminal, bytes.data(), bytes.size());
      if (got <= 0) return false;
      out.append(bytes.data(), static_cast<unsigned long>(got));
    }
    seen = out.find(text, seen) + text.size();
    return true;
  }
  void type(const char* keys) {
    ASSERT_EQ(::write(terminal, keys, std::strlen(keys)), static_cast<ssize_t>(std::strlen(keys)));
  }
  int exit_code() {
    if (!shows("\x1b[?1049l")) return -1;
    // The end of a program whose output nobody reads waits for its reader.
    shows("this is never shown, so all is read");
    int status = 0;
    ::waitpid(child, &status, 0);
    child = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  tcflag_t modes() const {
    termios now{};
    ::tcgetattr(terminal, &now);
    return now.c_lflag & (ICANON | ECHO);
  }

  test::Scratch scratch;
  int terminal = -1;
  pid_t child = -1;
  std::string out;
  std::size_t seen = 0;
};

TEST_F(WatchCommand, ShowsWhatComesAndQuits) {
  start();
  ASSERT_TRUE(shows("seen: trained without agents"));
  ASSERT_TRUE(shows("step        2 of 100"));
  ASSERT_TRUE(shows("q quit"));
  EXPECT_EQ(modes(), 0u);
  std::ofstream(scratch.path() / "run/metrics.jsonl", std::ios::app) << "{\"step\":3,\"loss\":2.0}\n";
  EXPECT_TRUE(shows("step        3 of 100"));
  type("s");
  EXPECT_TRUE(shows("Save a checkpoint after the current step?"));
  type("y");
  EXPECT_TRUE(shows("the run has no agents yet"));
  type("q");
  EXPECT_EQ(exit_code(), 0) << out;
  EXPECT_THAT(out, HasSubstr("\x1b[36m"));
}
TEST_F(WatchCommand, LeavesTheTerminalAsItWasWhenASignalEndsIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    out.clear();
    seen = 0;
    start("1");
    ASSERT_TRUE(shows("q quit"));
    ::kill(child, signal);
    EXPECT_EQ(exit_code(), 128 + signal);
    EXPECT_THAT(out, HasSubstr("\x1b[?25h"));
    EXPECT_THAT(out, Not(HasSubstr("\x1b[36m"))) << "NO_COLOR is set";
    ::close(terminal);
  }
  terminal = -1;
}
TEST_F(WatchCommand, GoesOnWhileStorageHangs) {
  const test::HungFile storage(scratch.path() / "run/metrics.jsonl");
  start();
  ASSERT_TRUE(shows("no answer from storage for "));
  type("s");
  EXPECT_TRUE(shows("Save a checkpoint after the current step?"));
  type("nq");
  EXPECT_EQ(exit_code(), 0) << out;
}
TEST_F(WatchCommand, StatusGivesUpWhenStorageHangs) {
  const test::HungFile storage(scratch.path() / "run/metrics.jsonl");
  Command command;
  command.argv = {HOLDFAST_PROGRAM, "status", (scratch.path() / "run").string(), "--timeout", "0.2"};
  const auto done = holdfast::run(command, std::chrono::seconds(60));
  EXPECT_EQ(done.status, 75);
  EXPECT_THAT(done.err, HasSubstr("no answer from the storage of "));
  EXPECT_THAT(done.err, HasSubstr("(for 0.2 s)"));
}
TEST_F(WatchCommand, ShowsARunThatIsOverAgain) {
  scratch.write("run/events/0001.jsonl",
                R"({"schema_version":1,"term":1,"seq":1,"time":"2023-11-14T22:13:20Z","unix":1700000000,)"
                R"("event":"run_finished","exit_code":0,"status":"done","why":""})"
                "\n");
  start();
  ASSERT_TRUE(shows("r replay  q quit"));
  type("r");
  ASSERT_TRUE(shows("space hold"));
  type(" ");
  EXPECT_TRUE(shows("held: space go on"));
  type("\x1b[C");
  type("r");
  EXPECT_TRUE(shows("r replay  q quit"));
  type("q");
  EXPECT_EQ(exit_code(), 0) << out;
}
TEST_F(WatchCommand, RefusesWhatIsNoTerminal) {
  Command command;
  command.argv = {HOLDFAST_PROGRAM, "watch", (scratch.path() / "run").string()};
  const auto done = holdfast::run(command, std::chrono::seconds(60));
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("'holdfast status RUN'"));
  EXPECT_EQ(done.out, "");
}

}  // namespace
}  // namespace holdfast

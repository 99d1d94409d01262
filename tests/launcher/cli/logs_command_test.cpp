// `holdfast logs` on run directories that grow.
#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <thread>

#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LogsCommand : public ::testing::Test {
 protected:
  LogsCommand() {
    fs::create_directories(run / "events");
    write("config.toml", "");
    write("logs/attempt-0001/rank-00000.log", "one\ntwo\nthree\n");
    write("logs/attempt-0002/rank-00000.log", "first\nlast");
    write("logs/attempt-0002/rank-00003.log", "of rank 3\n");
    write("logs/agent-dgx001.log", "agent\n");
    write("logs/job-9.log", "old\n");
    write("logs/job-12.log", "new\n");
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((run / name).parent_path());
    std::ofstream(run / name, std::ios::app) << text;
  }
  void event(const std::string& fields) {
    write("events/0001.jsonl", R"({"schema_version":1,"term":1,"time":"","unix":1,)" + fields + "}\n");
  }
  void end() {
    event(
        R"("seq":1,"event":"leader_elected","node":"dgx001","pid":1,"nodes":1,"job":"1.0","after":{"term":0,"seq":0})");
    event(R"("seq":2,"event":"run_finished","status":"done","exit_code":0,"why":"")");
  }
  Finished logs(std::vector<std::string> more) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM, "logs", run.string()};
    command.argv.insert(command.argv.end(), more.begin(), more.end());
    return holdfast::run(command, std::chrono::seconds(60));
  }

  test::Scratch scratch;
  fs::path run = scratch.path() / "run";
};

TEST_F(LogsCommand, ShowsRankZeroOfTheNewestAttempt) {
  EXPECT_EQ(logs({}).out, "first\nlast");
  EXPECT_EQ(logs({"--attempt", "1"}).out, "one\ntwo\nthree\n");
  EXPECT_EQ(logs({"--rank", "3"}).out, "of rank 3\n");
}
TEST_F(LogsCommand, ShowsOthersThanRanks) {
  EXPECT_EQ(logs({"--node", "dgx001"}).out, "agent\n");
  EXPECT_EQ(logs({"--job"}).out, "new\n") << "12 is newer than 9";
  EXPECT_EQ(logs({"--job", "--rank", "1"}).status, 2);
}
TEST_F(LogsCommand, BeginsWithTheLastLines) {
  EXPECT_EQ(logs({"--attempt", "1", "-n", "2"}).out, "two\nthree\n");
  EXPECT_EQ(logs({"--attempt", "1", "-n", "0"}).out, "");
  EXPECT_EQ(logs({"--attempt", "1", "-n", "99"}).out, "one\ntwo\nthree\n");
  EXPECT_EQ(logs({"-n", "1"}).out, "last") << "an incomplete line is one";
  write("logs/attempt-0003/rank-00000.log", std::string(3 << 20, 'x') + "\nend\n");
  EXPECT_EQ(logs({"-n", "1"}).out, "end\n");
  EXPECT_EQ(logs({}).out.size(), (3u << 20) + 5);
}
TEST_F(LogsCommand, SaysThatALogIsNotThere) {
  const auto done = logs({"--rank", "7"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("rank-00007.log is not there"));
  EXPECT_THAT(done.err, HasSubstr("'holdfast logs -f' waits for it"));
}
TEST_F(LogsCommand, SaysThatNoJobHasALogYet) {
  for (const char* log : {"logs/job-9.log", "logs/job-12.log"}) fs::remove(run / log);
  const auto done = logs({"--job"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("there is no log of a job yet (none is in " + run.string() + "/logs)"));
}
TEST_F(LogsCommand, FollowsOverAttemptsUntilTheRunHasEnded) {
  const fs::path out = scratch.path() / "out";
  auto following = std::async(std::launch::async, [&] {
    Command command;
    command.argv = {"sh",         "-c", R"(exec "$1" logs "$2" -f -n 1 >"$3")", "sh", HOLDFAST_PROGRAM,
                    run.string(), out};
    return holdfast::run(command, std::chrono::seconds(60));
  });
  const auto printed = [&](const std::string& text) {
    for (int i = 0; i < 500 && (!fs::exists(out) || files::read_text(out).find(text) == std::string::npos);
         ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  printed("last");
  write("logs/attempt-0002/rank-00000.log", " line\n");
  printed(" line\n");
  write("logs/attempt-0003/rank-00000.log", "again\n");
  printed("again\n");
  end();
  const auto done = following.get();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(files::read_text(out), "last line\nagain\n");
  EXPECT_THAT(done.err, HasSubstr("attempt-0003"));
}

}  // namespace
}  // namespace holdfast

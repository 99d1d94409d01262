// `holdfast report`, with SLURM's tools played.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "launcher/supervise/journal.hpp"
#include "src/base/env.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportCommand : public ::testing::Test {
 protected:
  /// A run that was elected a leader in each of these allocations, 1000 s apart.
  void had_jobs(const std::vector<std::string>& allocations) const {
    scratch.write("config.toml", "[run]\nname = \"made up\"\n");
    const RunDir dir{scratch.path()};
    files::fs::create_directories(dir.events());
    std::vector<LogEntry> entries;
    for (const auto& name : allocations) {
      entries.push_back({{}, events::LeaderElected{"n0", name, 1, {}, 2}});
      entries.back().envelope.unix = 1.7e9 + 1000 * static_cast<double>(entries.size());
    }
    Journal(dir, 1).write_all(entries);
  }
  std::string report() const {
    Command command;
    command.argv = {HOLDFAST_PROGRAM, "report", scratch.path().string(), "--markdown"};
    command.environment = env::without({"HOLDFAST_"});
    const Finished done = run(command, std::chrono::seconds(60));
    EXPECT_EQ(done.status, 0) << done.err;
    return done.out;
  }
  test::Scratch scratch;
  test::FakeTools tools;
};

TEST_F(ReportCommand, AsksForTheEnergyOfAllJobsOfTheRun) {
  had_jobs({"17.0", "17.1", "18.0.2"});
  tools.answer("sacct", "17|1700000900|1700001900|5400000\n17|1700001950|1700002800|1800000\n");
  tools.answer("scontrol", "AcctGatherEnergyType = acct_gather_energy/rapl\n");
  const std::string text = report();
  EXPECT_THAT(tools.calls(), HasSubstr("--jobs=17,18\n"));
  EXPECT_THAT(text, HasSubstr("| 17 | 2023-11-14T22:28:20Z | 2023-11-14T22:45:00Z | 1.5000 | 5400000 |"));
  EXPECT_THAT(text, HasSubstr("measured by rapl"));
}

TEST_F(ReportCommand, WithoutAccountsItSaysSo) {
  had_jobs({"17.0"});
  tools.answer("sacct", "", "Slurm accounting storage is disabled\n", 1);
  EXPECT_THAT(report(), HasSubstr("It is not known: SLURM keeps no accounts here"));
}

/// Nobody writes to the FIFO, and the device has no end.
TEST_F(ReportCommand, ReadsNothingButFiles) {
  had_jobs({});
  ASSERT_EQ(::mkfifo((scratch.path() / "metrics.jsonl").c_str(), 0600), 0);
  files::fs::create_symlink("/dev/zero", scratch.path() / "result.json");
  EXPECT_THAT(report(), HasSubstr("metrics.jsonl (it is not a regular file)"));
  files::fs::remove(scratch.path() / "config.toml");
  files::fs::create_symlink("/dev/zero", scratch.path() / "config.toml");
  const auto why_not = [this](const char* verb) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM, verb, scratch.path().string()};
    command.environment = env::without({"HOLDFAST_"});
    const Finished done = run(command, std::chrono::seconds(60));
    return done.out + done.err;
  };
  EXPECT_THAT(why_not("report"), HasSubstr("it is not a regular file"));
  EXPECT_THAT(why_not("status"), HasSubstr("it is not a regular file"));
  EXPECT_THAT(why_not("ls"), HasSubstr("cannot be read"));
  files::fs::remove(scratch.path() / "config.toml");
  ASSERT_EQ(::mkfifo((scratch.path() / "config.toml").c_str(), 0600), 0);
  for (const char* verb : {"report", "status"})
    EXPECT_THAT(why_not(verb), HasSubstr("it is not a regular file")) << verb;
}

TEST_F(ReportCommand, ARunWithoutJobsAsksNothing) {
  had_jobs({});
  EXPECT_THAT(report(), Not(HasSubstr("Energy")));
  EXPECT_EQ(tools.calls(), "");
}

/// The record alone would say that it runs.
TEST_F(ReportCommand, SaysThatAJobHasEndedBeforeItBegan) {
  had_jobs({});
  scratch.write("owner.json", R"({"schema_version":1,"job_id":17,"host":"login","pid":1,"since":1})");
  tools.answer("squeue", "17|FAILED|JobLaunchFailure|1795624800|(null)\n");
  EXPECT_THAT(report(), HasSubstr("| status | its job has ended (FAILED) |"));
}

}  // namespace
}  // namespace holdfast::launcher

// `holdfast ls`, and runs that are found by their names.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/launcher/run_inputs.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ListOfRuns : public ::testing::Test {
 protected:
  ListOfRuns() {
    tools.answer("sinfo", test::FakeTools::captured("version.txt"));
    tools.answer("sbatch", test::FakeTools::captured("sbatch_parsable.txt"));
    tools.answer("squeue", "1|PENDING|None||n/a|N/A|quickstart\n");
  }
  Finished holdfast(const std::vector<std::string>& words) {
    Command command;
    command.argv = {"sh", "-c", R"(cd "$1"; shift; exec "$@")", "sh", scratch.path(), HOLDFAST_PROGRAM};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = env::without({"HOLDFAST_", "TZ="});
    command.environment->push_back("TZ=UTC");
    return run(command, std::chrono::seconds(60));
  }
  /// Without run.dir.
  void submit(const std::string& name) {
    const auto done = holdfast({"submit", "quickstart", "-J", name, "--set", "data.tokens=" + tokens});
    ASSERT_EQ(done.status, 0) << done.err;
  }
  std::string script_of(const std::string& name) {
    return (scratch.path() / "runs" / name / "job.sbatch").string();
  }

  test::Scratch scratch;
  test::FakeTools tools;
  std::string tokens = test::write_tokens(scratch.path() / "tokens.bin");
};

TEST_F(ListOfRuns, JoinsTheRecordWithTheQueue) {
  submit("first");
  submit("second run/1");
  EXPECT_TRUE(fs::exists(scratch.path() / "runs" / "second-run-1" / "config.toml"));
  tools.answer("squeue", "17|PENDING|Priority|1795624800|" + script_of("first") + "\n");
  const auto list = holdfast({"ls"});
  ASSERT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, ContainsRegex("first +17 +- +- +in the queue \\(jobs of a higher priority come "
                                      "first\\), expected 2026-11-25 16:40 +/"));
  EXPECT_THAT(list.out, ContainsRegex("second run/1 +- +- +- +no job +/"));
  const auto read = nlohmann::json::parse(holdfast({"ls", "--json"}).out);
  EXPECT_EQ(read["runs"][0]["job"]["id"], 17);
  EXPECT_EQ(read["runs"][1]["state"], "no job");
}
TEST_F(ListOfRuns, HaveCheckpointsThatAreFoundByTheRunsName) {
  submit("first");
  tools.answer("squeue", "17|PENDING|" + script_of("first") + "\n");
  for (const std::string run : {"17", "runs/first"}) {
    const auto list = holdfast({"ckpt", "ls", run, "--json"});
    EXPECT_EQ(list.status, 0) << run << ": " << list.err;
  }
  const std::string run = "first";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"show", run},
                                             {"verify", run},
                                             {"diff", run, run},
                                             {"export", run, "out"},
                                             {"consolidate", run, "out.h5"},
                                             {"index", run},
                                             {"prune", run},
                                             {"pin", run},
                                             {"unpin", run, "--step", "17"}}) {
    auto all = words;
    all.insert(all.begin(), "ckpt");
    EXPECT_THAT(holdfast(all).err, Not(HasSubstr("there is no such folder"))) << words.front();
  }
  EXPECT_THAT(holdfast({"ckpt", "show", run}).err, HasSubstr("no sound checkpoint in "));
  fs::create_directories(scratch.path() / "first");
  EXPECT_THAT(holdfast({"ckpt", "show", "first"}).err, HasSubstr("first holds no checkpoints"))
      << "a path that is there is meant";
  EXPECT_THAT(holdfast({"ckpt", "show", "18"}).err, HasSubstr("you have no job 18"));
}
TEST_F(ListOfRuns, TheBestCheckpointHasAName) {
  submit("first");
  const fs::path checkpoints = scratch.path() / "runs" / "first" / "checkpoints";
  test::write_manifest(checkpoints / "step-00000010", {}, {});
  fs::create_directories(checkpoints / "step-00000020");  // a newer one, of which nothing is read
  const auto none = holdfast({"ckpt", "show", "first/best"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("runs/first has no best checkpoint (none is marked)"));
  files::replace_atomically(checkpoints / "step-00000010.best", R"({"held_out_loss":1.5})");
  for (const std::string& name : {std::string("first/best"), std::string("runs/first/best"),
                                  std::string("runs/first/checkpoints/best")}) {
    const auto shown = holdfast({"ckpt", "show", name});
    EXPECT_EQ(shown.status, 0) << shown.err;
    EXPECT_THAT(shown.out, AllOf(HasSubstr("step-00000010\n"), HasSubstr("best          yes\n"))) << name;
  }
}
TEST_F(ListOfRuns, AnOrderNeedsAgents) {
  submit("first");
  const auto order = holdfast({"ctl", "first", "save"});
  EXPECT_EQ(order.status, 2);
  EXPECT_THAT(order.err, HasSubstr("the run has no agents yet (the job of "));
}
TEST_F(ListOfRuns, AProgramWithoutAJobFileNamesItsRun) {
  fs::create_directories(scratch.path() / "bin");
  fs::create_symlink("/bin/true", scratch.path() / "bin" / "train");
  for (const auto& [command, name] :
       std::vector<std::pair<std::string, std::string>>{{"python3 -u src/train.py", "train"},
                                                        {"python3 -m pkg.fit --lr 1", "pkg.fit"},
                                                        {"./bin/train -m 5", "train-2"}}) {
    const auto done = holdfast({"submit", "--command", command, "-N", "1"});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_TRUE(fs::exists(scratch.path() / "runs" / name)) << command;
  }
}
TEST_F(ListOfRuns, HasRunsOfJobsThatLieElsewhere) {
  submit("far");
  fs::create_directories(scratch.path() / "empty");
  tools.answer("squeue",
               "17|RUNNING|None|1795624800|" + script_of("far") + "\n18|RUNNING|None|N/A|/other.sh\n");
  EXPECT_THAT(holdfast({"ls", "empty"}).out, ContainsRegex("far +17 +- +- +waiting for nodes"));
}
TEST_F(ListOfRuns, WithoutSlurmItSaysOnlyWhatTheRecordSays) {
  submit("first");
  tools.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller", 1);
  const auto list = holdfast({"ls"});
  EXPECT_EQ(list.status, 0);
  EXPECT_THAT(list.out, Not(HasSubstr("no job")));
  EXPECT_THAT(list.err, HasSubstr("cannot ask SLURM"));
}
TEST_F(ListOfRuns, WhatCannotBeLookedAtIsNotAbsent) {
  submit("first");
  fs::create_symlink("loop", scratch.path() / "runs" / "loop");
  const auto list = holdfast({"ls"});
  EXPECT_EQ(list.status, 0);
  EXPECT_THAT(list.out, HasSubstr("first"));
  EXPECT_THAT(list.err, HasSubstr("it is not known whether runs/loop is a run: Too many levels"));
  const auto alone = holdfast({"ls", "runs/loop"});
  EXPECT_EQ(alone.status, 75) << alone.out;
  EXPECT_THAT(alone.err, HasSubstr("cannot look at runs/loop"));
  EXPECT_THAT(alone.out, Not(HasSubstr("there is no run")));
}
TEST_F(ListOfRuns, ARunIsFoundByItsName) {
  submit("first");
  const auto status = holdfast({"status", "first"});
  EXPECT_EQ(status.status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("first"));
  EXPECT_EQ(holdfast({"ls", "nowhere"}).status, 2);
}

}  // namespace
}  // namespace holdfast

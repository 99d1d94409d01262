// `holdfast submit` as typed, with stand-ins for SLURM's tools.
#include <gmock/gmock.h>

#include <chrono>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class SubmitCommand : public ::testing::Test {
 protected:
  SubmitCommand() {
    tools.answer("sinfo", test::FakeTools::captured("version.txt"));
    tools.answer("scontrol", test::FakeTools::captured("ping_up.txt"));
    tools.answer("sbatch", test::FakeTools::captured("sbatch_parsable.txt"));
    tools.answer("squeue", "1|PENDING|None||n/a|N/A|quickstart\n");
  }
  Finished submit(std::vector<std::string> more) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM,
                    "submit",
                    HOLDFAST_SOURCE_DIR "/configs/jobs/quickstart.toml",
                    "--set",
                    "data.tokens=" + tokens,
                    "--set",
                    "run.dir=" + run.path.string()};
    command.argv.insert(command.argv.end(), more.begin(), more.end());
    command.environment = env::without({"HOLDFAST_"});
    return holdfast::run(command, std::chrono::seconds(60));
  }

  test::Scratch scratch;
  test::FakeTools tools;
  std::string tokens = scratch.write("tokens.bin", "tokens").string();
  RunDir run{scratch.path() / "runs" / "it's $(a) run"};
};

TEST_F(SubmitCommand, dry_run_shows_all_and_does_nothing) {
  const auto done =
      submit({"--dry-run", "-J", "$(touch x)", "-N", "2", "--spares=1", "-t", "1-0", "--", "-x", "dgx004"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("#!/bin/bash\n"));
  EXPECT_THAT(done.out, HasSubstr("#SBATCH --nodes=3\n"));
  EXPECT_THAT(done.out, HasSubstr("\n# sbatch --parsable '--job-name=$(touch x)' "));
  EXPECT_THAT(done.out, HasSubstr(" --time=1-0 -xdgx004 "));
  EXPECT_EQ(tools.calls(), "");
  EXPECT_FALSE(fs::exists(scratch.path() / "runs"));
}

TEST_F(SubmitCommand, parsable_prints_the_job_id_alone) {
  const auto done = submit({"--parsable"});
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.out, "1\n");
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(files::read_text(run.owner()), HasSubstr("\"job_id\":1,"));
  EXPECT_THAT(tools.calls(), HasSubstr("\n--chdir=" + run.path.string() + "\n"));
  EXPECT_THAT(tools.calls(), HasSubstr("\n" + run.script().string() + "\n]"));
  for (const auto& file : {run.config(), run.model(), run.cluster(), run.plan(), run.script(), run.secret()})
    EXPECT_TRUE(fs::exists(file)) << file;
}

TEST_F(SubmitCommand, tells_people_what_to_do_next) {
  const auto done = submit({"-J", "a b"});
  EXPECT_THAT(done.out, StartsWith("submitted job 1: 'a b'\n"));
  EXPECT_THAT(done.out,
              HasSubstr("holdfast status '" + scratch.path().string() + "/runs/it'\\''s $(a) run'"));
}

TEST_F(SubmitCommand, a_live_job_keeps_its_directory) {
  ASSERT_EQ(submit({}).status, 0);
  const auto again = submit({});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("belongs to job 1"));
  EXPECT_THAT(again.out, IsEmpty());
  tools.answer("squeue", test::FakeTools::captured("job_cancelled.txt"));
  EXPECT_EQ(submit({}).status, 0);
}

TEST_F(SubmitCommand, without_slurmctld_nothing_is_touched) {
  tools.answer("scontrol", test::FakeTools::captured("ping_down.txt"), "", 1);
  const auto done = submit({});
  EXPECT_EQ(done.status, 75);
  EXPECT_THAT(done.err, HasSubstr("Try again"));
  EXPECT_FALSE(fs::exists(run.path));
}

TEST_F(SubmitCommand, what_slurm_refuses_can_be_mended_and_tried_again) {
  tools.answer("sbatch", "", "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
               1);
  const auto refused = submit({"-p", "nowhere"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("Invalid partition name specified"));
  EXPECT_FALSE(fs::exists(run.owner()));
  tools.answer("sbatch", "",
               "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
               1);
  EXPECT_EQ(submit({}).status, 3);
  tools.answer("sbatch", "1\n");
  EXPECT_EQ(submit({}).status, 0);
}

TEST_F(SubmitCommand, a_lost_answer_is_settled_by_looking) {
  tools.answer("sbatch", "",
               "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", 1);
  const auto lost = submit({});
  EXPECT_EQ(lost.status, 75);
  EXPECT_THAT(lost.err, HasSubstr("unknown"));
  // The job was taken after all.
  tools.answer("squeue", "7|PENDING|" + run.script().string() + "\n");
  const auto found = submit({});
  EXPECT_EQ(found.status, 2);
  EXPECT_THAT(found.err, HasSubstr("belongs to job 7"));
  // Or it was not.
  tools.answer("squeue", "");
  tools.answer("sbatch", "8\n");
  EXPECT_EQ(submit({}).status, 0);
}

TEST_F(SubmitCommand, warns_when_the_job_can_never_start) {
  tools.answer("squeue", test::FakeTools::captured("job_too_big.txt"));
  const auto done = submit({"--parsable"});
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.err, HasSubstr("PartitionNodeLimit"));
}

TEST_F(SubmitCommand, refuses_nonsense_before_anything_happens) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--", "--nodes=3"},
                                             {"stray"},
                                             {"--set", "run.dir=a\\b"},
                                             {"--set", "data.tokens=/nowhere"},
                                             {"--spares=-1"},
                                             {"--set", "tran.steps=1"}}) {
    const auto done = submit(words);
    EXPECT_EQ(done.status, 2) << words.front() << done.err;
    EXPECT_THAT(done.out, IsEmpty());
  }
  EXPECT_EQ(submit({"-N", "500", "--set", "train.lanes=0", "--set", "train.leaves=1000"}).status, 3)
      << "more nodes than the cluster has";
  EXPECT_EQ(tools.calls(), "");
  EXPECT_FALSE(fs::exists(run.path));
}

}  // namespace
}  // namespace holdfast

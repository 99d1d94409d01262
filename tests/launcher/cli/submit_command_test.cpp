// `holdfast submit` with command lines of a user and fake SLURM tools.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/env.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/base/subprocess.hpp"
#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"
#include "tests/launcher/run_inputs.hpp"
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
    tools.answer("sbatch", test::FakeTools::captured("sbatch_parsable.txt"));
    tools.answer("squeue", "1|PENDING|None||n/a|N/A|quickstart\n");
  }
  Finished submit(std::vector<std::string> more) { return call("submit", std::move(more)); }
  Finished call(const std::string& verb, std::vector<std::string> more) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM,
                    verb,
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
  std::string tokens = test::write_tokens(scratch.path() / "tokens.bin");
  RunDir run{scratch.path() / "runs" / "it's $(a) run"};
};

TEST_F(SubmitCommand, refuses_the_minipods_settings_on_another_cluster) {
  tools.answer("scontrol", "ClusterName             = hpc1\nSlurmctld(primary) at login is UP\n");
  const auto done = submit({});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("SLURM calls this cluster 'hpc1'"));
  EXPECT_THAT(done.err, HasSubstr("holdfast init"));
  EXPECT_FALSE(files::is_there(run.path)) << "nothing was written";
  tools.answer("scontrol", "ClusterName             = minipod\nSlurmctld(primary) at login is UP\n");
  EXPECT_EQ(submit({}).status, 0);
}

TEST_F(SubmitCommand, goes_on_where_slurm_does_not_say_its_name) {
  tools.answer("scontrol", "", "slurm_load_ctl_conf error: Access/permission denied\n", 1);
  const auto done = submit({});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("it is unknown whether the cluster file describes this cluster"));
  EXPECT_THAT(done.err, HasSubstr("Access/permission denied"));
}

TEST_F(SubmitCommand, computes_the_steps_of_epochs_once) {
  // 4096 tokens are 31 samples of 128 tokens and a label; a step takes 16.
  std::vector<std::string> two = {"--set", "train.epochs=2", "--set", "optim.warmup_steps=1"};
  const auto plan = call("plan", two);
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("run         4 steps: 2.065 epochs of 1.9375 steps (31 sequences)"));
  ASSERT_EQ(submit(two).status, 0);
  two.push_back("--json");
  const auto json = nlohmann::json::parse(call("plan", two).out);
  EXPECT_EQ(json.at("steps"), 4);
  EXPECT_EQ(json.at("samples_of_epoch"), 31);
  const auto train = config::load(run.config()).config.train;
  EXPECT_EQ(train.steps, 4);
  EXPECT_EQ(train.epochs, 2);
}

TEST_F(SubmitCommand, refuses_epochs_that_are_no_step) {
  for (const char* verb : {"plan", "submit"}) {
    const auto few = call(verb, {"--set", "train.epochs=2", "--set", "train.global_batch=32"});
    EXPECT_EQ(few.status, 3) << verb;
    EXPECT_THAT(few.err,
                HasSubstr("is smaller than one step (it has 31 samples, and train.global_batch is 32)"));
    const auto both = call(verb, {"--set", "train.epochs=2", "--set", "train.steps=3"});
    EXPECT_EQ(both.status, 2) << verb;
    EXPECT_THAT(both.err, HasSubstr("train.steps and train.epochs are both set"));
  }
  EXPECT_FALSE(files::is_there(run.path)) << "nothing was written";
  tokens = "/nowhere";
  const auto plan = call("plan", {"--set", "train.epochs=2"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("run         as many steps as train.epochs make of the data"));
  EXPECT_THAT(plan.out, HasSubstr("the data cannot be read here"));
  EXPECT_EQ(submit({"--set", "train.epochs=2"}).status, 2);
}

TEST_F(SubmitCommand, takes_everyday_options_of_slurm_as_its_own) {
  const auto done = submit({"--dry-run", "-p", "gpu", "-A", "physics", "-q", "high", "-C", "h100&ib",
                            "--reservation", "maintenance", "-w", "dgx[001-002]", "-x", "dgx007"});
  ASSERT_EQ(done.status, 0) << done.err;
  for (const char* option :
       {" --partition=gpu ", " --account=physics ", " --qos=high ", " '--constraint=h100&ib' ",
        " --reservation=maintenance ", " '--nodelist=dgx[001-002]' ", " --exclude=dgx007 "})
    EXPECT_THAT(done.out, HasSubstr(option));
}

TEST_F(SubmitCommand, the_plan_takes_what_describes_the_job) {
  const auto done =
      call("plan", {"-J", "mine", "-N", "2", "-x", "dgx[001-002]", "--json", "--", "--qos=high"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("\"dgx003\""));
  EXPECT_THAT(done.out, Not(HasSubstr("\"dgx002\"")));
}

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

TEST_F(SubmitCommand, the_group_reads_no_value_that_may_be_secret) {
  ASSERT_EQ(submit({"--set", "rank.environment=[\"TOKEN=hunter2\"]"}).status, 0);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(run.path)) {
    if (!entry.is_regular_file() || entry.path().filename() == "config.toml") continue;
    EXPECT_THAT(files::read_text(entry.path()), Not(HasSubstr("hunter2"))) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 5);
}

TEST_F(SubmitCommand, parsable_prints_the_job_id_alone) {
  const auto done = submit({"--parsable"});
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.out, "1\n");
  EXPECT_THAT(done.err, Not(HasSubstr("submitted")));
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

TEST_F(SubmitCommand, an_image_is_for_the_agents_and_not_for_the_batch_script) {
  const std::vector<std::string> flags = {"--", "--container-image", "ubuntu:24.04",
                                          "--container-mounts=/home:/home"};
  tools.answer("srun", "Usage: srun [OPTIONS(0)...]\n");
  const auto refused = submit(flags);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(
      refused.err,
      HasSubstr(
          "no step can be started with --container-image (srun does not know it). Has this cluster pyxis?"));
  EXPECT_FALSE(fs::exists(run.path));
  tools.answer("srun", "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n");
  const auto done = submit(flags);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(tools.calls(), Not(HasSubstr("--container")));
  const auto container = config::load(run.config()).config.container;
  EXPECT_EQ(container.image, "ubuntu:24.04");
  EXPECT_THAT(container.mounts, ::testing::ElementsAre("/home:/home"));
}

TEST_F(SubmitCommand, the_plan_shows_the_image) {
  const auto done = call("plan", {"--set", "container.image=ubuntu:24.04"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("image       ubuntu:24.04: agents and ranks run in it"));
  EXPECT_THAT(call("plan", {"--set", "container.writable=true"}).err, HasSubstr("container.image is empty"));
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

TEST_F(SubmitCommand, a_job_may_wait_for_the_one_that_has_the_run) {
  ASSERT_EQ(submit({}).status, 0);
  const std::string owner = files::read_text(run.owner());
  const auto done = submit({"-p", "gpu", "--", "--dependency=afterany:1"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(tools.calls(), HasSubstr("\n--dependency=afterany:1\n"));
  EXPECT_EQ(files::read_text(run.owner()), owner);
  const auto other = submit({"--set", "train.seed=7", "--", "--dependency=singleton"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("seed = 7"));
  const auto elsewhere = submit({"--", "--dependency=afterany:9"});
  EXPECT_EQ(elsewhere.status, 2);
  EXPECT_THAT(elsewhere.err, HasSubstr("let this job wait for it with '-- --dependency=afterany:1'"));
}

TEST_F(SubmitCommand, fits_the_notice_to_the_time_limit) {
  for (const char* verb : {"plan", "submit"}) {
    const auto none = call(verb, {"-t", "1"});
    EXPECT_EQ(none.status, 2) << verb;
    EXPECT_THAT(none.err, HasSubstr("a time limit of 60 s leaves no time to train"));
  }
  EXPECT_FALSE(files::is_there(run.path));
  const auto shorter = submit({"--dry-run", "--", "--time=3"});
  EXPECT_THAT(shorter.out, HasSubstr("#SBATCH --signal=B:USR1@60\n"));
  EXPECT_THAT(shorter.err, HasSubstr("SLURM tells the run to save 60 to 120 s before it, not 120 to 180 s"));
  EXPECT_THAT(submit({"--dry-run", "-t", "30"}).out, HasSubstr("#SBATCH --signal=B:USR1@120\n"));
}

TEST_F(SubmitCommand, says_which_variables_of_the_shell_it_leaves_out) {
  env::set("SBATCH_NO_REQUEUE", "1");
  env::set("SBATCH_TIMELIMIT", "1");
  const auto limited = submit({});
  EXPECT_EQ(limited.status, 2) << "sbatch reads that one";
  EXPECT_THAT(limited.err, HasSubstr("a time limit of 60 s leaves no time to train"));
  ::unsetenv("SBATCH_TIMELIMIT");
  for (const char* verb : {"plan", "submit"}) {
    const auto done = call(verb, {});
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.out + done.err, HasSubstr("sbatch does not get SBATCH_NO_REQUEUE of your shell"));
  }
  ::unsetenv("SBATCH_NO_REQUEUE");
}

TEST_F(SubmitCommand, without_slurmctld_nothing_is_touched) {
  tools.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
               1);
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
  // SLURM has accepted the job.
  tools.answer("squeue", "7|PENDING|" + run.script().string() + "\n");
  const auto found = submit({});
  EXPECT_EQ(found.status, 2);
  EXPECT_THAT(found.err, HasSubstr("belongs to job 7"));
  // SLURM has not accepted the job.
  tools.answer("squeue", "");
  tools.answer("sbatch", "8\n");
  EXPECT_EQ(submit({}).status, 0);
}

TEST_F(SubmitCommand, warns_when_the_job_can_never_start) {
  tools.answer("sbatch", "5\n");
  tools.answer("squeue", test::FakeTools::captured("job_too_big.txt"));
  const auto done = submit({"--parsable"});
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.err, HasSubstr("job 5 may never start: another number of nodes than "
                                  "the partition allows (PartitionNodeLimit)"));
}

TEST_F(SubmitCommand, warns_of_a_partition_with_too_few_nodes) {  // when SLURM gives no reason yet
  tools.answer("sinfo",
               test::FakeTools::captured("version.txt") + test::FakeTools::captured("site_partitions.txt"));
  const auto done = submit({"-N", "4", "--spares=1", "--set", "shard.group=4"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("job 1 may never start: it asks for 5 nodes, and partition pod has 4"));
}

TEST_F(SubmitCommand, without_an_answer_about_nodes_it_warns_of_nothing) {
  tools.answer("sinfo", test::FakeTools::captured("version.txt"));
  const auto done = submit({"-N", "4", "--spares=1", "--set", "shard.group=4"});
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.err, Not(HasSubstr("never start")));
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
  EXPECT_EQ(submit({"-N", "500", "--set", "train.lanes=0", "--set", "train.global_batch=2000"}).status, 3)
      << "more nodes than the cluster has";
  EXPECT_EQ(tools.calls(), "");
  EXPECT_FALSE(fs::exists(run.path));
}

/// `plan` and `submit` refuse at once, with the same message, what ranks would refuse hours later.
TEST_F(SubmitCommand, refuses_what_ranks_would_refuse_and_so_does_plan) {
  const std::string large = test::write_tokens(scratch.path() / "large.bin", 5000),
                    text = scratch.write("text.jsonl", std::string(9000, '{')).string(),
                    script = scratch.write("train.sh", "#!/bin/sh\n").string();
  config::RunConfig began = config::load(HOLDFAST_SOURCE_DIR "/configs/jobs/quickstart.toml").config;
  began = config::resolve(began, config::load_cluster("minipod"));
  test::write_manifest(run.checkpoints() / "step-00000010", began, config::load_model("tiny"));
  scratch.write("runs/it's $(a) run/config.toml", config::to_toml(began));
  struct Case {
    std::vector<std::string> words;
    const char* says;
  };
  const std::vector<std::string> on_gpus = {"--set", "cluster.file=jeroboam", "--spares=0", "--set"};
  auto fp32 = on_gpus, heads = on_gpus;
  fp32.push_back("precision.parameters=fp32");
  heads.push_back("model.file=" + scratch
                                      .write("wide.toml",
                                             "[model]\nvocabulary = 512\nwidth = 512\nlayers = 1\n"
                                             "heads = 2\nkv_heads = 2\nffn = 64\nmax_sequence = 512\n")
                                      .string());
  for (const auto& [words, says] : std::vector<Case>{
           {fp32, "attention on the GPU computes in bf16 only"},
           {heads, "attention on the GPU has no heads of 256 elements"},
           {{"--set", "train.global_batch=18", "--set", "train.lanes=0"},
            "not a multiple of the ranks of a shard group"},
           {{"-N", "3"},
            "too few lanes for the replicas (2 lanes of 4 micro-batches, 3 replicas of 2 ranks)"},
           {{"--set", "data.tokens=" + large}, "has another vocabulary than the model (5000 tokens"},
           {{"--set", "data.tokens=" + text},
            "not a token file). Make it again with `holdfast data prepare`"},
           {{"--set", "rank.command=[\"" + script + "\"]"}, "it is not an executable file"},
           {{"--set", "train.sequence=64"}, "was \"micro-batch 2x128\", now \"micro-batch 2x64\""},
           {{"--resume", run.path.string()}, "It is a run directory; name one of its checkpoints"},
       })
    for (const std::string verb : {"plan", "submit"}) {
      auto all = words;
      if (verb == "submit") all.emplace_back("--dry-run");
      const auto done = call(verb, all);
      EXPECT_EQ(done.status, 2) << verb << ' ' << says << done.err;
      EXPECT_THAT(done.err, HasSubstr(says)) << verb;
      EXPECT_THAT(done.out, IsEmpty());
    }
  // Other machines may have the files that are missing here: `plan` warns, but `submit` refuses.
  for (const auto& [words, says] : std::vector<Case>{
           {{"--set", "data.tokens=/nowhere"}, "cannot use the token file /nowhere"},
           {{"--set", "rank.command=[\"/nowhere/train\"]"}, "there is no program '/nowhere/train'"},
           {{"--set", "rank.command=[\"no-such-program\"]"}, "there is no program 'no-such-program'"},
       }) {
    EXPECT_THAT(call("plan", words).out, HasSubstr(std::string("submit would refuse the job: ") + says));
    const auto done = submit(words);
    EXPECT_EQ(done.status, 2);
    EXPECT_THAT(done.err, HasSubstr(says));
  }
  // The same job continues from that checkpoint in every layout that divides it.
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-N", "1"}, {"-N", "2", "--set", "shard.strategy=hfsdp"}, {"-N", "4", "--set", "shard.group=4"}})
    for (const std::string verb : {"plan", "submit"}) {
      auto all = words;
      if (verb == "submit") all.emplace_back("--dry-run");
      const auto done = call(verb, all);
      EXPECT_EQ(done.status, 0) << verb << words.back() << done.err;
    }
  EXPECT_EQ(tools.calls(), "");
}

TEST_F(SubmitCommand, what_cannot_be_looked_at_is_not_called_absent) {
  fs::create_symlink("loop", scratch.path() / "loop");
  const std::string in = (scratch.path() / "loop/in").string();
  for (const std::string verb : {"plan", "submit"})
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"--set", "slurm.bundle=" + in}, {"--resume", in}}) {
      const auto done = call(verb, words);
      EXPECT_EQ(done.status, 75) << verb << done.out << done.err;
      EXPECT_THAT(done.err, HasSubstr("cannot look at " + in + " (Too many levels of symbolic links)"));
      EXPECT_THAT(done.err, Not(HasSubstr("internal error")));
      EXPECT_THAT(done.err, Not(HasSubstr("there is no")));
    }
}

TEST_F(SubmitCommand, a_job_that_does_not_fit_is_refused_with_what_fits) {
  const std::vector<std::string> words = {
      "--set", "train.global_batch=16000", "--set", "train.micro_batch=2000", "--set", "train.lanes=0"};
  for (const std::string verb : {"plan", "submit"}) {
    auto all = words;
    if (verb == "plan") all.emplace_back("--json");
    const auto done = call(verb, all);
    EXPECT_EQ(done.status, 3) << verb;
    EXPECT_THAT(done.err, HasSubstr("but its share of a node has 2.00 GiB"));
    EXPECT_THAT(done.err, HasSubstr(" with which it fits: "));
    EXPECT_THAT(done.out, IsEmpty());
  }
  EXPECT_EQ(tools.calls(), "");
}

TEST_F(SubmitCommand, a_job_goes_on_in_any_layout_by_default) {
  tools.answer("squeue", test::FakeTools::captured("job_cancelled.txt"));
  const std::vector<std::string> open = {"--set", "train.lanes=0"};
  ASSERT_EQ(submit(open).status, 0);
  EXPECT_EQ(config::load(run.config()).config.train.lanes, 8) << "of the batch, not of the two replicas";
  test::write_manifest(run.checkpoints() / "step-00000010", config::load(run.config()).config,
                       config::load_model("tiny"));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-N", "1"},
                                             {"-N", "4"},
                                             {"-N", "3"},
                                             {"-N", "4", "--set", "shard.group=1"},
                                             {"-N", "2", "--set", "shard.strategy=full_shard"}}) {
    auto all = open;
    all.insert(all.end(), words.begin(), words.end());
    const auto done = submit(all);
    EXPECT_EQ(done.status, 0) << words.back() << done.err;
    EXPECT_EQ(config::load(run.config()).config.train.lanes, 8);
  }
  // Without the flag the job file says 2, which is another order of additions.
  const auto other = submit({});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("was \"8 micro-batches in 8 lanes\", now \"8 micro-batches in 2 lanes\""));
}

}  // namespace
}  // namespace holdfast

#include "launcher/job/run_dir_setup.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "src/control/secret.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using test::refusal_of;
using ::testing::HasSubstr;

class RunDirSetup : public ::testing::Test {
 protected:
  RunDirSetup() {
    wanted.config.run.dir = (scratch.path() / "run").string();
    wanted.config.data.tokens = scratch.write("tokens.bin", "tokens").string();
    wanted.facts = config::load_cluster(HOLDFAST_SOURCE_DIR "/configs/clusters/minipod.toml");
    wanted.plan = "{}\n", wanted.script = "#!/bin/bash\n";
  }
  void set_up() {
    run = run_dir_of(wanted.config);
    wanted.config = with_absolute_paths(wanted.config, run);
    check_run_dir(run, wanted);
    create_folders(run);
    write_run_files(run, wanted);
  }
  static unsigned mode(const fs::path& path) {
    struct stat facts {};
    ::stat(path.c_str(), &facts);
    return facts.st_mode & 07777;
  }
  test::Refusal refusal() {
    return refusal_of([&] { check_run_dir(run, wanted); });
  }

  test::Scratch scratch;
  RunFiles wanted;
  RunDir run;
};

TEST_F(RunDirSetup, makes_a_private_directory_that_reads_back) {
  wanted.config.run.name = "a \"b\"\n$(c)";
  set_up();
  EXPECT_EQ(mode(run.path), 0700u);
  EXPECT_EQ(mode(run.secret()), 0600u);
  control::read_secret(run.secret());
  for (const auto& folder : {run.epochs(), run.events(), run.checkpoints(), run.logs()})
    EXPECT_TRUE(fs::is_directory(folder)) << folder;
  const auto config = config::load(run.config()).config;
  EXPECT_EQ(config.run.name, wanted.config.run.name);
  EXPECT_EQ(config.run.dir, run.path);
  EXPECT_EQ(config::load_model(config.model.file), wanted.model);
  EXPECT_EQ(config::load_cluster(config.cluster.file).name, "minipod");
}

TEST_F(RunDirSetup, keeps_the_secret_and_takes_new_settings) {
  set_up();
  const std::string secret = files::read_text(run.secret());
  wanted.config.train.steps = 777;
  set_up();
  EXPECT_EQ(files::read_text(run.secret()), secret);
  EXPECT_EQ(config::load(run.config()).config.train.steps, 777);
}

TEST_F(RunDirSetup, makes_paths_absolute) {
  const auto before = fs::current_path();
  fs::current_path(scratch.path());
  auto config = wanted.config;
  config.run.dir = "runs/../runs/a/", config.data.tokens = "d/tokens", config.data.validation = "d/held-out",
  config.model.weights = "w/hf", config.slurm.bundle = "b.tar.gz", config.run.resume = "old/step",
  config.rank.command = {"./train.sh", "./x"};
  const RunDir where = run_dir_of(config);
  config = with_absolute_paths(config, where);
  const auto here = fs::current_path();
  fs::current_path(before);
  EXPECT_EQ(where.path, here / "runs/a");
  EXPECT_EQ(config.data.tokens, here / "d/tokens");
  EXPECT_EQ(config.data.validation, here / "d/held-out");
  EXPECT_EQ(config.model.weights, here / "w/hf");
  EXPECT_EQ(config.slurm.bundle, here / "b.tar.gz");
  EXPECT_EQ(config.run.resume, here / "old/step");
  EXPECT_EQ(config.rank.command.front(), here / "train.sh");
  EXPECT_EQ(config.rank.command.back(), "./x") << "arguments are the program's business";
  EXPECT_EQ(config.model.file, where.model());
  config.run.resume = "auto", config.rank.command = {"python3"};
  config = with_absolute_paths(config, where);
  EXPECT_EQ(config.run.resume, "auto");
  EXPECT_EQ(config.rank.command.front(), "python3");
}

TEST_F(RunDirSetup, gives_one_name_to_one_directory) {
  fs::create_directories(scratch.path() / "real");
  fs::create_directory_symlink(scratch.path() / "real", scratch.path() / "link");
  auto config = wanted.config;
  config.run.dir = (scratch.path() / "link/a").string();
  EXPECT_EQ(run_dir_of(config).path, fs::canonical(scratch.path()) / "real/a");
  config.run.dir = "";
  EXPECT_EQ(refusal_of([&] { run_dir_of(config); }).exit, Exit::usage);
}

TEST_F(RunDirSetup, refuses_what_is_no_run_directory) {
  run = run_dir_of(wanted.config);
  scratch.write("run", "a file");
  EXPECT_THAT(refusal().text, HasSubstr("not a directory"));
  fs::remove(run.path);
  scratch.write("run/thesis.tex", "precious");
  EXPECT_THAT(refusal().text, HasSubstr("not a run directory"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  fs::remove(run.path / "thesis.tex");
  check_run_dir(run, wanted);  // empty is fine
}

TEST_F(RunDirSetup, refuses_the_run_of_another_model) {
  set_up();
  wanted.model.layers += 1;
  EXPECT_THAT(refusal().text, HasSubstr("another model"));
  EXPECT_THAT(refusal().text, HasSubstr("model.layers is 2 there and 3 here"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  wanted.model.layers -= 1, wanted.model.name = "renamed";
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, refuses_weights_that_are_not_there) {
  run = run_dir_of(wanted.config);
  wanted.config.model.weights = (scratch.path() / "nowhere").string();
  EXPECT_THAT(refusal().text, HasSubstr("there are no weights at"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  wanted.config.rank.command = {"./mine"};  // what they mean to another program is its business
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, does_not_train_over_checkpoints) {
  set_up();
  wanted.config.run.resume = "none";
  check_run_dir(run, wanted);
  fs::create_directory(run.checkpoints() / "step-1");
  EXPECT_THAT(refusal().text, HasSubstr("holds checkpoints"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  files::replace_atomically(run.owner(), R"({"job_id":7,"host":"n0","pid":1,"since":0})");
  check_run_dir(run, wanted, 7);  // the job that has written them comes back
  EXPECT_THAT(refusal_of([&] { check_run_dir(run, wanted, 8); }).text, HasSubstr("holds checkpoints"));
  EXPECT_THAT(refusal().text, HasSubstr("holds checkpoints"));
  wanted.config.run.resume = "auto";
  check_run_dir(run, wanted);
  wanted.config.run.resume = "/nowhere";
  EXPECT_THAT(refusal().text, HasSubstr("no checkpoint /nowhere"));
}

TEST_F(RunDirSetup, wants_tokens_for_our_own_trainer_only) {
  run = run_dir_of(wanted.config);
  for (const std::string& tokens : {std::string(), std::string("/nowhere"),
                                    scratch.write("empty", "").string(), scratch.path().string()}) {
    wanted.config.data.tokens = tokens;
    wanted.config.rank.command = {"holdfast-train"};
    EXPECT_EQ(refusal().exit, Exit::usage) << tokens;
    wanted.config.rank.command = {"true"};
    check_run_dir(run, wanted);
  }
}

TEST_F(RunDirSetup, closes_an_open_folder) {
  fs::create_directory(scratch.path() / "run");
  ::chmod((scratch.path() / "run").c_str(), 0777);
  set_up();
  EXPECT_EQ(mode(run.path), 0700u);
}

}  // namespace
}  // namespace holdfast::launcher

#include "launcher/job/run_dir_setup.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "launcher/job/job_monitor.hpp"
#include "launcher/job/preparation.hpp"
#include "launcher/job/run_history.hpp"
#include "launcher/plan/survival.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "src/config/shown.hpp"
#include "src/control/secret.hpp"
#include "tests/config/scratch.hpp"
#include "tests/launcher/run_inputs.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using test::refusal_of;
using ::testing::HasSubstr;

class RunDirSetup : public ::testing::Test {
 protected:
  RunDirSetup() {
    wanted.config.run.dir = (scratch.path() / "run").string();
    wanted.config.data.tokens = test::write_tokens(scratch.path() / "tokens.bin");
    wanted.facts = config::load_cluster(HOLDFAST_SOURCE_DIR "/configs/clusters/minipod.toml");
    wanted.config = config::resolve(wanted.config, wanted.facts);
    wanted.plan = "{}\n";
    wanted.script = "#!/bin/bash\n";
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

TEST_F(RunDirSetup, what_the_group_may_read_is_said_by_the_umask) {
  wanted.config.rank.command = {"/usr/bin/env", "--token=hunter2"};
  wanted.config.rank.environment = {"TOKEN=hunter2"};
  for (const auto& [mask, folder, file] : {std::tuple(022u, 0750u, 0640u), {077u, 0700u, 0600u}}) {
    const mode_t before = ::umask(mask);
    fs::remove_all(scratch.path() / "run");
    set_up();
    ::umask(before);
    EXPECT_EQ(mode(run.path), folder);
    EXPECT_EQ(comment_interval(run, 300), mask == 022u ? 300 : 0) << "everybody reads the job's comment";
    for (const auto& inside : {run.terms(), run.events(), run.checkpoints(), run.logs()})
      EXPECT_EQ(mode(inside), folder) << inside;
    for (const auto& readable : {run.settings(), run.model(), run.plan(), run.script()}) {
      EXPECT_EQ(mode(readable), file) << readable;
      EXPECT_EQ(files::read_text(readable).find("hunter2"), std::string::npos) << readable;
    }
    for (const auto& kept : {run.secret(), run.config()}) EXPECT_EQ(mode(kept), 0600u) << kept;
    EXPECT_EQ(config::load(run.config()).config.rank, wanted.config.rank);
    const auto shown = config::load(run.settings()).config.rank;
    EXPECT_EQ(shown.command, (std::vector<std::string>{"/usr/bin/env", config::not_shown}));
    EXPECT_EQ(shown.environment, std::vector<std::string>{std::string("TOKEN=") + config::not_shown});
  }
}

/// Versions before made them with the umask alone.
TEST_F(RunDirSetup, folders_that_were_open_to_the_group_are_closed) {
  set_up();
  const auto folders = {run.configs(), run.terms(), run.events(), run.checkpoints(), run.logs()};
  for (const auto& folder : folders) {
    fs::create_directories(folder);
    ASSERT_EQ(::chmod(folder.c_str(), 0775), 0);
    ASSERT_EQ(::chown(folder.c_str(), ::geteuid(), ::geteuid() == 0 ? 61000 : ::getegid()), 0);
  }
  set_up();
  for (const auto& folder : folders) EXPECT_EQ(mode(folder) & 022u, 0u) << folder;
}

TEST_F(RunDirSetup, the_groups_plan_has_no_argument_and_no_value_of_the_users) {
  config::RunConfig config = wanted.config;
  config.rank.command = {"python3", "train.py", "--token=hunter2"};
  config.rank.environment = {"TOKEN=hunter2"};
  Plan plan;
  plan.program = program_says(config);
  plan.environment = {"NCCL_DEBUG=WARN", "TOKEN=hunter2"};
  const Plan shown = plan_for_group(plan, config);
  EXPECT_EQ(to_json(shown).dump().find("hunter2"), std::string::npos);
  EXPECT_THAT(shown.program.at(0), HasSubstr("python3"));
  EXPECT_EQ(shown.program.size(), plan.program.size());
  EXPECT_EQ(shown.environment.at(0), "NCCL_DEBUG=WARN");
}

TEST_F(RunDirSetup, makes_a_private_directory_that_reads_back) {
  wanted.config.run.name = "a \"b\" $(c)";
  set_up();
  EXPECT_EQ(mode(run.path) & 0027, 0u);
  EXPECT_EQ(mode(run.secret()), 0600u);
  control::read_secret(run.secret());
  for (const auto& folder : {run.terms(), run.events(), run.checkpoints(), run.logs()})
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
  config.run.dir = "runs/../runs/a/", config.data.tokens = "d/tokens",
  config.data.validation = {"d/held-out", "/e"}, config.model.weights = "w/hf",
  config.slurm.bundle = "b.tar.gz", config.run.resume = "old/step",
  config.rank.command = {"./train.sh", "./x"};
  const RunDir where = run_dir_of(config);
  config = with_absolute_paths(config, where);
  const auto here = fs::current_path();
  fs::current_path(before);
  EXPECT_EQ(where.path, here / "runs/a");
  EXPECT_EQ(config.data.tokens, here / "d/tokens");
  EXPECT_EQ(config.data.validation, (std::vector<std::string>{(here / "d/held-out").string(), "/e"}));
  EXPECT_EQ(config.model.weights, here / "w/hf");
  EXPECT_EQ(config.slurm.bundle, here / "b.tar.gz");
  EXPECT_EQ(config.run.resume, here / "old/step");
  EXPECT_EQ(config.rank.command.front(), here / "train.sh");
  EXPECT_EQ(config.rank.command.back(), "./x") << "arguments are the program's business";
  EXPECT_EQ(config.model.file, where.model());
  config.run.resume = "auto";
  config.rank.command = {"python3"};
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
  config.run.name = "../my run";
  EXPECT_EQ(run_dir_of(config).path, fs::current_path() / "runs" / "-..-my-run");
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
  wanted.model.layers -= 1;
  wanted.model.name = "renamed";
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, refuses_weights_that_are_not_there) {
  run = run_dir_of(wanted.config);
  wanted.config.model.weights = (scratch.path() / "nowhere").string();
  EXPECT_THAT(refusal().text, HasSubstr("there are no weights at"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  wanted.config.rank.command = {"true"};  // what they mean to another program is its business
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, does_not_train_over_checkpoints) {
  set_up();
  wanted.config.run.resume = "none";
  check_run_dir(run, wanted);
  fs::create_directory(run.checkpoints() / "step-00000001");
  EXPECT_THAT(refusal().text, HasSubstr("already holds a run up to step 1"));
  EXPECT_EQ(refusal().exit, Exit::usage);
  files::replace_atomically(run.owner(), R"({"job_id":7,"host":"n0","pid":1,"since":0})");
  check_run_dir(run, wanted, 7);  // the job that has written them comes back
  EXPECT_THAT(refusal_of([&] { check_run_dir(run, wanted, 8); }).text,
              HasSubstr("already holds a run up to step 1"));
  EXPECT_THAT(refusal().text, HasSubstr("already holds a run up to step 1"));
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

TEST_F(RunDirSetup, refuses_token_files_as_ranks_would) {
  run = run_dir_of(wanted.config);
  const auto says = [&](const std::string& tokens) {
    wanted.config.data.tokens = tokens;
    const auto refused = refusal();
    EXPECT_EQ(refused.exit, Exit::usage);
    return refused.text;
  };
  EXPECT_THAT(says(test::write_tokens(scratch.path() / "large.bin", 5000)),
              HasSubstr("large.bin has another vocabulary than the model (5000 tokens; model tiny knows "));
  EXPECT_THAT(says(scratch.write("text.jsonl", std::string(9000, '{')).string()),
              HasSubstr("not a token file"));
  EXPECT_THAT(says(test::write_tokens(scratch.path() / "short.bin", 256, 100)), HasSubstr("too short"));
  EXPECT_THAT(
      says(test::write_tokens(scratch.path() / "rows.bin", 256, 4096, 64)),
      HasSubstr("packed for another train.sequence (its rows have 64 tokens, train.sequence is 256)"));
  wanted.config.data.tokens = "";
  wanted.config.data.mixture = {test::write_tokens(scratch.path() / "a.bin", 256, 4096, 0, "a") + " 1",
                                test::write_tokens(scratch.path() / "b.bin", 256, 4096, 0, "b") + " 1"};
  EXPECT_THAT(refusal().text, HasSubstr("b.bin was made by another tokenizer than that of "));
  wanted.config.data.other_tokenizer = true;
  check_run_dir(run, wanted);
  wanted.config.eval.every = 5;
  wanted.config.data.validation = {"/nowhere"};
  EXPECT_THAT(refusal().text, HasSubstr("cannot use the token file /nowhere (No such file"));
}

TEST_F(RunDirSetup, wants_a_program_that_runs) {
  run = run_dir_of(wanted.config);
  const auto says = [&](const std::string& program) {
    wanted.config.rank.command = {program};
    const auto refused = refusal();
    EXPECT_EQ(refused.exit, Exit::usage);
    return refused.text;
  };
  EXPECT_THAT(says("/nowhere/train.sh"),
              HasSubstr("there is no program '/nowhere/train.sh' (rank.command names it"));
  EXPECT_THAT(says("no-such-program"),
              HasSubstr("there is no program 'no-such-program' (rank.command names it, and "
                        "it is not in PATH ("));
  EXPECT_THAT(says(scratch.path().string()), HasSubstr("is not a program"));
  const auto script = scratch.write("bin/train.sh", "#!/bin/sh\n");
  EXPECT_THAT(says(script.string()), HasSubstr("it is not an executable file). chmod +x it"));
  fs::permissions(script, fs::perms::owner_all);
  check_run_dir(run, wanted);
  wanted.config.rank.command = {"train.sh"};
  EXPECT_THAT(refusal().text, HasSubstr("not in PATH"));
  wanted.config.rank.environment = {"PATH=/usr/bin:" + script.parent_path().string()};
  check_run_dir(run, wanted);
  wanted.config.rank.command = {"holdfast-train"};  // comes with this program, or in a bundle
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, refuses_a_checkpoint_of_other_arithmetic_as_ranks_would) {
  set_up();
  const auto step = run.checkpoints() / "step-00000010";
  test::write_manifest(step, wanted.config, wanted.model);
  check_run_dir(run, wanted);
  const auto good = wanted;
  wanted.config.train.sequence = 128;
  EXPECT_EQ(refusal().exit, Exit::usage);
  EXPECT_THAT(refusal().text,
              HasSubstr("the checkpoint " + step.string() +
                        " was computed with other arithmetic than this run's (was \"micro-batch 1x256\", now "
                        "\"micro-batch 1x128\"). Set it back, begin another run (run.dir), or "
                        "run.other_numerics = \"continue\""));
  wanted.config.run.other_numerics = "continue";
  check_run_dir(run, wanted);
  wanted = good;
  wanted.config.precision.reduce = config::Precision::bf16;
  EXPECT_THAT(refusal().text, HasSubstr("reduce bf16"));
  wanted = good;
  wanted.config.cluster.nodes = 4,
  wanted.config.shard.strategy = config::Strategy::hfsdp;  // other layouts go on
  check_run_dir(run, wanted);
  fs::remove(step / "manifest.json");  // what cannot be read now, ranks may read later
  wanted.config.train.sequence = 128;
  check_run_dir(run, wanted);
}

TEST_F(RunDirSetup, wants_a_checkpoint_where_one_is_named) {
  set_up();
  const RunDir other{scratch.path() / "other"};
  wanted.config.run.resume = other.path.string();
  EXPECT_THAT(refusal().text, HasSubstr("there is no checkpoint"));
  test::write_manifest(other.checkpoints() / "step-00000010", wanted.config, wanted.model);
  EXPECT_EQ(refusal().exit, Exit::usage);
  EXPECT_THAT(refusal().text, HasSubstr("cannot resume from " + other.path.string()));
  EXPECT_THAT(refusal().text, HasSubstr("It is a run directory; name one of its checkpoints, for example " +
                                        (other.checkpoints() / "step-00000010").string()));
  wanted.config.run.resume = (other.checkpoints() / "step-00000010").string();
  check_run_dir(run, wanted);
  auto shape = wanted.model;
  shape.layers += 1;
  test::write_manifest(wanted.config.run.resume, wanted.config, shape);
  EXPECT_THAT(refusal().text, HasSubstr("belongs to another model (model.layers is 3 there and 2 here)"));
}

TEST_F(RunDirSetup, a_run_keeps_its_lanes) {
  wanted.config.train.lanes = 2;
  set_up();
  config::RunConfig open = wanted.config;
  open.train.lanes = 0;
  EXPECT_EQ(with_lanes_of(run, open).train.lanes, 2);
  EXPECT_EQ(with_lanes_of({}, open).train.lanes, 0);
  open.train.lanes = 4;
  EXPECT_EQ(with_lanes_of(run, open).train.lanes, 4) << "asked for by name";
  open.train.lanes = 0;
  open.train.global_batch = 32;
  EXPECT_EQ(with_lanes_of(run, open).train.lanes, 0) << "of another batch";
}

TEST_F(RunDirSetup, closes_an_open_folder) {
  fs::create_directory(scratch.path() / "run");
  ::chmod((scratch.path() / "run").c_str(), 0777);
  set_up();
  EXPECT_EQ(mode(run.path) & 0027, 0u);
  ::chmod(run.path.c_str(), 0700);
  set_up();
  EXPECT_EQ(mode(run.path), 0700u) << "what its owner has closed stays closed";
}

}  // namespace
}  // namespace holdfast::launcher

// All that is wrong with a job, found together. What single files are refused for: tests/launcher/job,
// tests/weights.
#include "src/preflight/preflight.hpp"

#include <gmock/gmock.h>

#include "tests/launcher/run_inputs.hpp"
#include "tests/weights/folders.hpp"

namespace holdfast::preflight {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Preflight : public ::testing::Test {
 protected:
  Preflight() {
    config.data.tokens = test::write_tokens(scratch.path() / "tokens.bin");
    facts.name = "here";
    facts.shared = {"/", scratch.path().string()};
    config.cluster.ranks_per_node = 1;
    config = config::resolve(config, facts);
  }
  Problems look() const {
    Problems problems;
    look_at({config, model, facts, run, false, true, checkpoint_bytes}, problems);
    return problems;
  }
  std::vector<std::string> says() const {
    std::vector<std::string> out;
    for (const Error& error : look().all()) out.emplace_back(error.what());
    return out;
  }

  test::Scratch scratch;
  config::RunConfig config;
  config::ModelShape model = config::load_model(HOLDFAST_SOURCE_DIR "/configs/models/tiny.toml");
  config::ClusterFacts facts;
  RunDir run{scratch.path() / "run"};
  std::int64_t checkpoint_bytes = 1;
};

TEST_F(Preflight, FindsNothingInASoundJob) {
  EXPECT_THAT(says(), IsEmpty());
  EXPECT_THAT(look().doubts(), IsEmpty());
}

TEST_F(Preflight, FindsEverythingAtOnce) {
  const std::string good = config.data.tokens;
  config.data.tokens = "";
  config.data.mixture = {good + " 1", scratch.write("text.jsonl", std::string(9000, '{')).string() + " 1",
                         "/nowhere/tokens 1"};
  config.model.weights =
      weights::testing::write_model(scratch, "hf", weights::testing::small_shape()).string();
  config.lora.weights = "/nowhere/adapters";
  config.lora.rank = 4;
  scratch.write("run", "a file");
  EXPECT_THAT(
      says(),
      ElementsAre(HasSubstr("text.jsonl"),
                  HasSubstr("hf is not of this model (model.embed_tokens.weight has shape [12, 8]"),
                  HasSubstr("run is not a directory"), HasSubstr("cannot use the token file /nowhere/tokens"),
                  HasSubstr("there are no adapters at /nowhere/adapters (lora.weights names it")));
  EXPECT_EQ(look().of_this_machine().size(), 2u) << "another machine may have what is not here";
  const auto refused = [](auto act) {
    try {
      act();
    } catch (const Errors& errors) {
      EXPECT_EQ(errors.exit(), Exit::usage);
      return errors.all().size();
    }
    return std::size_t{0};
  };
  EXPECT_EQ(refused([&] { look().refuse(); }), 5u);
  EXPECT_EQ(refused([&] { look().refuse_but_those_of_this_machine(); }), 3u);
}

TEST_F(Preflight, AdaptersMustBeOfTheRunsKind) {
  model = weights::testing::small_shape();
  auto facts_there = weights::testing::small_adapters();
  config.data.tokens = test::write_tokens(scratch.path() / "few.bin", 12);
  config.lora = facts_there.lora;
  config.lora.weights = weights::testing::write_peft(scratch, "peft", model, facts_there).string();
  model.adapters = config::adapters_of(config.lora);
  EXPECT_THAT(says(), IsEmpty());
  config.lora.alpha = 6;
  model.adapters = config::adapters_of(config.lora);
  EXPECT_THAT(says(), ElementsAre(HasSubstr("of another kind than this run's (there rank 3, alpha 5 on ")));
}

TEST_F(Preflight, WeightsOfARunAreThoseOfItsNewestCheckpoint) {
  test::write_manifest(scratch.path() / "other/checkpoints/step-00000010", config, model);
  config.model.weights = (scratch.path() / "other").string();
  EXPECT_THAT(says(),
              ElementsAre(HasSubstr("step-00000010 does not hold the weights of this model (it has no "
                                    "model/model.embed_tokens.weight)")));
}

TEST_F(Preflight, WithWhatARunBeganIsOfNoConcernWhenItGoesOn) {
  config.model.weights = "/nowhere/hf";
  EXPECT_THAT(says(), ElementsAre(HasSubstr("/nowhere/hf")));
  const fs::path step = run.checkpoints() / "step-00000010";
  test::write_manifest(step, config, model);
  scratch.write("run/config.toml", config::to_toml(config));
  EXPECT_THAT(says(), IsEmpty());
  config.run.resume = step.string();
  run.path = scratch.path() / "other";
  EXPECT_THAT(says(), IsEmpty());
  config.lora.rank = 4;
  config.lora.weights = "/nowhere/adapters";
  model.adapters = config::adapters_of(config.lora);
  EXPECT_THAT(says(), Contains(HasSubstr("/nowhere/hf"))) << "adapters lie beside the weights";
  EXPECT_THAT(says(), Not(Contains(HasSubstr("/nowhere/adapters"))));
}

TEST_F(Preflight, AnotherProgramLooksAtItsOwnFiles) {
  config.rank.command = {"true"};
  config.data.tokens = "/nowhere";
  config.model.weights = "/nowhere";
  checkpoint_bytes = INT64_MAX / 8;
  EXPECT_THAT(says(), IsEmpty());
  config.container.image = "an/image";
  config.rank.command = {"no-such-program"};
  EXPECT_THAT(says(), IsEmpty()) << "it lies in the image";
}

TEST_F(Preflight, TheProgramIsLookedForInThePathOfTheRanks) {
  fs::permissions(scratch.write("bin/trainer", "#!/bin/sh\n"), fs::perms::owner_all);
  const std::string bin = "PATH=" + (scratch.path() / "bin").string();
  config.rank.command = {"trainer"};
  EXPECT_THAT(says(), ElementsAre(HasSubstr("there is no program 'trainer'")));
  config.rank.environment = {bin + ":/usr/bin"};
  EXPECT_THAT(says(), IsEmpty());
  config.rank.environment = {};
  facts.environment = {bin};
  EXPECT_THAT(says(), IsEmpty()) << "the cluster file's";
  config.rank.environment = {"PATH=/usr/bin"};
  EXPECT_THAT(says(), ElementsAre(HasSubstr("it is not in PATH (/usr/bin)"))) << "the job's is the later one";
  config.rank.environment = {"PATH=bin"};
  config.rank.directory = scratch.path().string();
  EXPECT_THAT(says(), IsEmpty()) << "from where the ranks work";
}

TEST_F(Preflight, CheckpointsNeedRoom) {
  checkpoint_bytes = INT64_MAX / 8;
  EXPECT_THAT(says(), ElementsAre(HasSubstr("there is no room for a checkpoint (it takes ")));
  EXPECT_EQ(look().of_this_machine().front().exit(), Exit::impossible);
  checkpoint_bytes = static_cast<std::int64_t>(fs::space(scratch.path()).available) / 2;
  EXPECT_THAT(says(), IsEmpty());
  EXPECT_THAT(look().doubts(), ElementsAre(HasSubstr("4 more checkpoints of ")));
}

TEST_F(Preflight, NodesSeeSharedFoldersOnly) {
  facts.shared = {"/shared", scratch.path().string() + "/"};
  EXPECT_THAT(says(), IsEmpty());
  facts.shared = {"/shared", scratch.path().string() + "/run"};
  EXPECT_THAT(says(), ElementsAre(HasSubstr("the nodes do not see data.tokens " + config.data.tokens +
                                            " (all nodes of here see /shared, ")));
  facts.shared = {};
  run.path = "/dev/shm/runs/a";
  EXPECT_THAT(look().doubts(), Contains(HasSubstr("run.dir /dev/shm/runs/a is on a file system of this "
                                                  "machine alone (tmpfs)")));
}

TEST_F(Preflight, MachinesKeepFoldersForThemselvesEvenWhereAllIsShared) {
  facts.shared = {"/"};
  run.path = "/tmp/runs/a";
  EXPECT_THAT(says(), IsEmpty());
  EXPECT_THAT(look().doubts(), Contains("run.dir /tmp/runs/a is in /tmp, which nodes usually have each for "
                                        "itself"));
  facts.shared = {"/", "/tmp/runs"};
  EXPECT_THAT(look().doubts(), Not(Contains(HasSubstr("run.dir")))) << "the cluster file names it";
  facts.shared = {"/"};
  run.path = "/home/me/runs/a";
  EXPECT_THAT(look().doubts(), Not(Contains(HasSubstr("run.dir"))));
}

TEST_F(Preflight, SharedFoldersMayBeNamedByTheirLinks) {
  const fs::path real = scratch.path() / "lustre", link = scratch.path() / "scratch";
  fs::create_directories(real / "me");
  fs::create_directory_symlink(real, link);
  config.data.tokens = test::write_tokens(link / "me/tokens.bin");
  run.path = real / "me/run";  // run.dir is resolved
  facts.shared = {link.string()};
  EXPECT_THAT(says(), IsEmpty());
  facts.shared = {real.string()};
  EXPECT_THAT(says(), IsEmpty());
  facts.shared = {(scratch.path() / "lustre2").string()};
  EXPECT_EQ(says().size(), 2u);
}

TEST_F(Preflight, AFileSystemThatDoesNotSayItsSizeHasRoom) {
  run.path = "/proc/self/run";  // it has no blocks
  checkpoint_bytes = INT64_MAX / 8;
  EXPECT_THAT(says(), Not(Contains(HasSubstr("there is no room"))));
}

TEST_F(Preflight, ADamagedCheckpointIsSaidBeforeItIsPassedOver) {
  const fs::path step = run.checkpoints() / "step-00000010";
  test::write_manifest(step, config, model);
  scratch.write("run/config.toml", config::to_toml(config));
  EXPECT_THAT(look().doubts(), IsEmpty());
  fs::resize_file(step / "shard-00000.h5", 100);
  EXPECT_THAT(look().doubts(), ElementsAre(HasSubstr("shard-00000.h5 has 100 bytes, not 12288")));
  config.run.resume = step.string();
  EXPECT_THAT(says(), ElementsAre(HasSubstr("cannot resume from " + step.string() + " (")));
}

TEST_F(Preflight, ARunDirectoryLiesInAFolder) {
  run.path = config.data.tokens + "/run";
  EXPECT_THAT(says(), ElementsAre(HasSubstr("tokens.bin: Not a directory")));
}

}  // namespace
}  // namespace holdfast::preflight

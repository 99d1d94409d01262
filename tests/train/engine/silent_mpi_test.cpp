// Silent data corruption on six ranks (three replicas of two): what is broken on purpose is found at the next
// comparison, the right rank is named, and what the run goes on from was compared. Also the other faults of a
// drill, and pauses.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/index/catalog.hpp"
#include "src/base/error.hpp"
#include "src/control/secret.hpp"
#include "src/data/token_file.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/local/local_level.hpp"
#include "src/train/loop/trainer.hpp"
#include "tests/support/learnable_tokens.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

/// What an agent would say, step by step; what the rank says is kept.
class ScriptedLink final : public control::RankLink {
 public:
  std::int64_t fault_at = -1;  ///< asked for in this step of the attempt (from 1)
  control::Injection fault;
  std::int64_t pause_at = -1;
  int pause_calls = 0;  ///< so often the run is told to hold
  std::optional<control::Drain> drain_in_pause;

  std::vector<int> accused;
  std::string check;
  std::int64_t trusted = -1;
  control::Restored from;
  bool was_paused = false;

  void progress(std::int64_t step, control::Phase phase) override {
    step_ = step;
    was_paused |= phase == control::Phase::paused;
  }
  void restored(const control::Restored& restored) override { from = restored; }
  void doubt(std::int64_t step, const std::vector<int>& ranks, const std::string& what,
             const std::string&) override {
    trusted = step;
    accused = ranks;
    check = what;
  }
  control::Orders take_orders() override {
    control::Orders out;
    if (was_paused) out.drain = std::exchange(drain_in_pause, std::nullopt);
    out.pause = step_ + 1 >= pause_at && pause_at >= 0 && pauses_++ < pause_calls;
    return out;
  }
  std::optional<control::Injection> take_injection() override {
    return ++steps_ == fault_at ? std::optional(fault) : std::nullopt;
  }

 private:
  std::int64_t step_ = 0;
  std::int64_t steps_ = 0;  ///< begun; in each of them faults are asked for once
  int pauses_ = 0;
};

struct Outcome {
  std::string digest;
  Exit exit = Exit::done;
  std::string why;
};

class SilentCorruption : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = tests::session().world({.limit = std::chrono::seconds(30)});
    rank_ = world_->rank();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string pid = comm::broadcast_text(*world_, std::to_string(::getpid()), 0);
    folder_ = fs::temp_directory_path() / (std::string("holdfast-silent-") + test->name() + "-" + pid);
    together(*world_, rank_ == 0, [&] {
      fs::create_directories(folder_);
      std::ofstream(folder_ / "model.toml")
          << "[model]\nname = \"micro\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\n"
             "kv_heads = 2\nffn = 88\nmax_sequence = 64\n";
      std::ofstream(folder_ / "job.toml")
          << "[model]\nfile = \"" << (folder_ / "model.toml").string() << "\"\n[data]\ntokens = \""
          << (folder_ / "tokens.bin").string()
          << "\"\n[train]\nsteps = 8\nsequence = 32\nglobal_batch = 12\nmicro_batch = 1\nlanes = 6\n"
             "[optim]\nlr = 1e-2\nwarmup_steps = 2\n[checkpoint]\nevery = 4\n"
             "[shard]\nstrategy = \"hybrid_shard\"\ngroup = 2\n"
             "[verify]\nreplicas_every = 2\nmicro_batch_every = 2\n[drill]\nallowed = true\n";
      data::TokenFileWriter writer((folder_ / "tokens.bin").string(), 128);
      writer.append(learnable_tokens(128, 5000));
      writer.finish();
    });
  }
  void TearDown() override {
    world_->barrier();
    if (!HasFailure() && rank_ == 0) fs::remove_all(folder_);
  }

  /// Two ranks per "node".
  train::Setup setup(const std::string& dir, const Sets& sets) {
    train::Setup out;
    out.config = config::load((folder_ / "job.toml").string(), sets).config;
    out.shape = config::load_model(out.config.model.file);
    out.dir = {folder_ / dir};
    out.place = {rank_, world_->size(), 2, std::nullopt};
    config::check(out.config, out.shape);
    together(*world_, rank_ == 0, [&] {
      fs::create_directories(out.dir.checkpoints());
      control::make_secret(out.dir.secret());
    });
    return out;
  }
  Outcome train(const std::string& dir, ScriptedLink& link, const Sets& sets = {}) {
    const train::Setup all = setup(dir, sets);
    const auto device = device::make_cpu_device({.threads = 1});
    const auto world = device->communicator(tests::session().world({.limit = std::chrono::seconds(30)}));
    Outcome out;
    try {
      Trainer trainer(all, *device, *world, nullptr, link);
      out.digest = trainer.run().state_digest;
    } catch (const Error& error) {
      out.exit = error.exit();
      out.why = error.what();
    }
    world_->barrier();  // the others would look at files before rank 0 has committed them
    return out;
  }
  Outcome train(const std::string& dir, const Sets& sets = {}) {
    ScriptedLink link;
    return train(dir, link, sets);
  }
  /// Digest of a run in which nothing happens.
  std::string undisturbed() {
    static const std::string digest = train("whole").digest;
    return digest;
  }
  /// `fault` of `rank` in the step that leads to `step`.
  Outcome broken(const std::string& dir, ScriptedLink& link, const std::string& fault, int rank,
                 std::int64_t step, const Sets& sets = {}) {
    if (rank_ == rank) {
      link.fault_at = step;
      link.fault = {fault, 0.2, 77};
    }
    return train(dir, link, sets);
  }
  std::vector<std::int64_t> saved(const std::string& dir) const {
    return checkpoint::committed_steps(RunDir{folder_ / dir}.checkpoints());
  }

  std::unique_ptr<comm::Communicator> world_;
  int rank_ = 0;
  fs::path folder_;
};

TEST_F(SilentCorruption, ChecksChangeNoBit) {
  for (const std::string strategy : {"hybrid_shard", "hfsdp", "full_shard"}) {
    const Sets off = {"shard.strategy=" + strategy, "train.steps=4", "verify.replicas_every=0",
                      "verify.micro_batch_every=0"},
               on = {"shard.strategy=" + strategy, "train.steps=4", "verify.replicas_every=1",
                     "verify.micro_batch_every=1"};
    const Outcome without = train("off " + strategy, off), with = train("on " + strategy, on);
    ASSERT_EQ(with.exit, Exit::done) << with.why;
    ASSERT_FALSE(with.digest.empty());
    EXPECT_EQ(with.digest, without.digest) << strategy;
  }
}

TEST_F(SilentCorruption, AFlippedBitOfTheStateIsFoundAndItsRankNamed) {
  const std::string whole = undisturbed();
  ScriptedLink link;
  // In the step to 5, so after the comparison at 4; found at 6.
  const Outcome doubted = broken("run", link, "flip_state", 3, 5);
  EXPECT_EQ(doubted.exit, Exit::unhealthy);
  EXPECT_THAT(doubted.why, HasSubstr("rank 3 may be wrong"));
  if (rank_ == 0) {
    EXPECT_THAT(link.accused, ElementsAre(3));
    EXPECT_EQ(link.check, "replicas");
    EXPECT_EQ(link.trusted, 4);
  }
  EXPECT_THAT(saved("run"), ElementsAre(4));
  ScriptedLink again;
  const Outcome healed = train("run", again);
  EXPECT_EQ(again.from.step, 4);
  EXPECT_EQ(healed.digest, whole) << healed.why;
}

TEST_F(SilentCorruption, AWrongStateIsNeverSaved) {
  ScriptedLink link;
  const Sets rarely = {"verify.replicas_every=100", "verify.micro_batch_every=0"};
  const Outcome doubted = broken("run", link, "flip_state", 0, 3, rarely);
  EXPECT_EQ(doubted.exit, Exit::unhealthy);
  if (rank_ == 0) {
    EXPECT_THAT(link.accused, ElementsAre(0));
  }
  EXPECT_THAT(saved("run"), ElementsAre()) << "the save at step 4 was compared before it was written";

  ScriptedLink last;
  EXPECT_EQ(broken("end", last, "flip_state", 0, 7, rarely).exit, Exit::unhealthy);
  EXPECT_THAT(saved("end"), ElementsAre(4)) << "so was the last one";
}

TEST_F(SilentCorruption, OfTwoReplicasNeitherCanBeToldUnlessOneContradictsItself) {
  ScriptedLink link;
  const Sets two = {"shard.group=3", "verify.replicas_every=1", "verify.micro_batch_every=0"};
  EXPECT_EQ(broken("run", link, "flip_state", 4, 3, two).exit, Exit::unhealthy);
  if (rank_ == 0) {
    EXPECT_THAT(link.accused, ElementsAre(1, 4));
    EXPECT_EQ(link.trusted, 2);
  }
  Sets local = two;
  local.push_back("checkpoint.local=" + folder_.string());
  ScriptedLink sealed;
  EXPECT_EQ(broken("with seals", sealed, "flip_state", 4, 3, local).exit, Exit::unhealthy);
  if (rank_ == 0) {
    EXPECT_THAT(sealed.accused, ElementsAre(4));
  }
}

TEST_F(SilentCorruption, AWrongMicroBatchIsFoundAndItsRankNamed) {
  const std::string whole = undisturbed();
  for (const std::string strategy : {"hybrid_shard", "full_shard"}) {
    ScriptedLink link;
    // Micro-batches of the step to 6 are computed again.
    const Outcome doubted = broken(strategy, link, "flip_gradient", 5, 5, {"shard.strategy=" + strategy});
    EXPECT_EQ(doubted.exit, Exit::unhealthy);
    EXPECT_THAT(doubted.why, HasSubstr("rank 5 may compute wrong"));
    if (rank_ == 0) {
      EXPECT_THAT(link.accused, ElementsAre(5));
      EXPECT_EQ(link.check, "micro_batch");
      EXPECT_EQ(link.trusted, 3);
    }
    EXPECT_EQ(train(strategy, {"shard.strategy=" + strategy}).digest, whole);
  }
}

TEST_F(SilentCorruption, StateThatIsNotTrustedIsPutAway) {
  const Sets local = {"checkpoint.local=" + folder_.string()};
  const std::string whole = train("run", local).digest;
  EXPECT_THAT(saved("run"), ElementsAre(8, 4));
  const train::Setup all = setup("run", local);
  const auto device = device::make_cpu_device({.threads = 1});
  const auto world = device->communicator(tests::session().world({.limit = std::chrono::seconds(30)}));
  ScriptedLink link;
  train::Setup doubted = all;
  doubted.place.agent = RankEnv{};
  doubted.place.agent->attempt = 2;
  doubted.place.agent->from.trusted_step = 5;
  doubted.place.agent->local_level = *local_folder_of(all);
  Trainer trainer(doubted, *device, *world, nullptr, link);
  EXPECT_EQ(trainer.run().state_digest, whole);
  EXPECT_EQ(link.from.step, 4);
  EXPECT_EQ(link.from.level, "shared");
  EXPECT_TRUE(fs::exists(all.dir.checkpoints() / "step-00000008.suspect"));
  EXPECT_THAT(saved("run"), ElementsAre(8, 4));
}

/// A rank that computes NaN where others do not is accused, whatever its position; its successor goes on from
/// state that the NaN did not reach.
TEST_F(SilentCorruption, ARankThatAloneComputesNaNIsAccused) {
  const std::string whole = undisturbed();
  for (const auto& [rank, strategy] : {std::pair{1, "hybrid_shard"}, {4, "full_shard"}}) {
    ScriptedLink link, again;
    const std::string dir = fmt::format("nan {}", rank);
    const Sets sets = {std::string("shard.strategy=") + strategy, "verify.micro_batch_every=0"};
    const Outcome doubted = broken(dir, link, "nan", rank, 6, sets);
    EXPECT_EQ(doubted.exit, Exit::unhealthy) << doubted.why;
    EXPECT_THAT(doubted.why, HasSubstr(fmt::format("what rank {} computed is not finite, and was finite when "
                                                   "another node computed it again",
                                                   rank)));
    if (rank_ == 0) {
      EXPECT_THAT(link.accused, ElementsAre(rank));
      EXPECT_EQ(link.check, "micro_batch");
      EXPECT_EQ(link.trusted, 5);
    }
    const Outcome healed = train(dir, again, sets);
    EXPECT_EQ(again.from.step, 4);
    EXPECT_EQ(healed.digest, whole) << healed.why;
  }
}

TEST_F(SilentCorruption, ANaNThatNobodyFindsAgainCostsAStepAndAccusesNobody) {
  const std::string whole = undisturbed();
  ScriptedLink link;
  const Outcome once = broken("once", link, "nan_once", 2, 3);
  EXPECT_EQ(once.exit, Exit::done) << once.why;
  EXPECT_EQ(once.digest, whole);
  EXPECT_THAT(link.accused, ElementsAre());
  EXPECT_EQ(link.trusted, -1);
}

TEST_F(SilentCorruption, ANaNThatAnotherNodeFindsTooIsTheRuns) {
  ScriptedLink link;
  const Outcome diverged = train("diverged", link, {"optim.lr=1e30", "optim.clip_norm=0"});
  EXPECT_EQ(diverged.exit, Exit::no_requeue);
  EXPECT_THAT(diverged.why, HasSubstr("another node came to the same when it computed it again"));
  EXPECT_THAT(link.accused, ElementsAre());
}

TEST_F(SilentCorruption, OtherFaultsOfADrill) {
  const std::string whole = undisturbed();
  ScriptedLink no_space, slow, stall;
  EXPECT_EQ(broken("no space", no_space, "no_space", 2, 3).digest, whole);
  EXPECT_THAT(saved("no space"), ElementsAre(8)) << "the save at step 4 failed";
  EXPECT_EQ(broken("slow", slow, "slow", 2, 3).digest, whole);
  EXPECT_EQ(broken("stall", stall, "stall", 2, 3).digest, whole);
  ScriptedLink refused;
  EXPECT_EQ(broken("refused", refused, "nan", 1, 3, {"drill.allowed=false"}).digest, whole);
}

TEST_F(SilentCorruption, APausedRunHoldsAndGoesOnAndHearsDrains) {
  const std::string whole = undisturbed();
  ScriptedLink link;
  if (rank_ == 0) {
    link.pause_at = 3;
    link.pause_calls = 3;
  }
  EXPECT_EQ(train("run", link).digest, whole);
  EXPECT_TRUE(link.was_paused);

  ScriptedLink drained;
  if (rank_ == 0) {
    drained.pause_at = 3;
    drained.pause_calls = 1000;
    drained.drain_in_pause = control::Drain{true, "SIGTERM"};
  }
  const Outcome stopped = train("stopped", drained);
  EXPECT_EQ(stopped.exit, Exit::transient);
  EXPECT_THAT(saved("stopped"), ElementsAre(3));
  EXPECT_EQ(train("stopped").digest, whole);
}

}  // namespace
}  // namespace holdfast::train

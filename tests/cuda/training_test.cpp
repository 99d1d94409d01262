// holdfast-train as a whole on a GPU, here the simulated one: in every world and strategy, across restarts
// and after failures the bits of one rank that was left alone.
#include <gmock/gmock.h>

#include <regex>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class GpuTraining : public TrainingFixture {
 protected:
  using Environment = std::vector<std::string>;  ///< "NAME=value"
  struct Layout {
    int world = 1;
    Sets sets;
    Environment environment;
  };

  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a step of the simulated GPU takes half a minute there: its tests of single kernels run";
#endif
    TrainingFixture::SetUp();
    env::set("HOLDFAST_CUDA_MODULE", HOLDFAST_SIM_MODULE);
    env::set("HOLDFAST_SHARE_GPU", "1");
    env::set("HOLDFAST_SIM_LUCK", "1");  // some products add up in two halves
    env::set("OMPI_MCA_mpi_yield_when_idle", "1");
    write("model.toml",
          "[model]\nname = \"micro\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = 2\nffn "
          "= 96\nmax_sequence = 64\n");
    write("job.toml",
          "[model]\nfile = \"" + path("model.toml") + "\"\n[data]\ntokens = \"" + path("tokens.bin") +
              "\"\n[train]\ndevice = \"cuda\"\nsteps = 6\nsequence = 32\nglobal_batch = 16\nmicro_batch = "
              "2\nlanes = 4\n[precision]\nparameters = \"bf16\"\nreduce = \"bf16\"\n[optim]\nlr = "
              "1e-2\nwarmup_steps = 2\n[checkpoint]\nevery = 2\n");
  }

  Finished start(const std::string& dir, const Layout& layout) const {
    Environment before = {"/usr/bin/env"};
    before.insert(before.end(), layout.environment.begin(), layout.environment.end());
    return train(layout.world, dir, layout.sets, before);
  }
  /// It ends well, with this digest and these losses.
  void ends_as(const std::string& expected, const std::string& dir, const Layout& layout) const {
    const Finished done = start(dir, layout);
    const auto what = ::testing::PrintToString(layout.sets) + " on " + std::to_string(layout.world) +
                      " with " + ::testing::PrintToString(layout.environment);
    ASSERT_EQ(done.status, 0) << what << "\n" << done.err;
    EXPECT_EQ(digest(dir), digest(expected)) << what;
    EXPECT_EQ(losses(dir), losses(expected)) << what;
  }
  void end_as_one_rank(const std::vector<Layout>& layouts, const Sets& common = {}) const {
    const Finished alone = start("one", {1, common, {}});
    ASSERT_EQ(alone.status, 0) << alone.err;
    int run = 0;
    for (Layout layout : layouts) {
      layout.sets.insert(layout.sets.end(), common.begin(), common.end());
      ends_as("one", "run" + std::to_string(run++), layout);
    }
  }
  /// A model with these settings learns on both, and has one digest in two worlds, with every access of a
  /// kernel checked.
  void is_near_the_cpu(const std::string& settings) const {
    write("model.toml", files::read_text(path("model.toml")) + settings);
    ASSERT_EQ(start("cpu", {1, {"train.device=cpu"}, {}}).status, 0);
    const Finished done = start("gpu", {});
    ASSERT_EQ(done.status, 0) << done.err;
    const auto expected = losses("cpu"), curve = losses("gpu");
    ASSERT_EQ(curve.size(), 6u);
    EXPECT_LT(curve.back(), curve.front() - 0.05) << "it should learn something";
    for (std::size_t i = 0; i < curve.size(); ++i)
      EXPECT_NEAR(curve[i], expected[i], 2e-3) << "step " << i + 1;
    ends_as("gpu", "guarded",
            {2,
             {"shard.strategy=full_shard", "train.activation_checkpointing=full"},
             {"HOLDFAST_SIM_GUARD=1", "HOLDFAST_SIMT_SEED=77"}});
  }
  std::vector<std::string> algorithms(const std::string& dir) const {
    std::vector<std::string> out;
    const auto json = nlohmann::json::parse(files::read_text(folder_ / dir / "tuning.json"));
    for (const auto& [key, entry] : json["entries"].items())
      out.push_back(key + " " + entry["algorithm"].dump());
    return out;
  }
  /// How many graphs were launched, and how often memory was asked for.
  static std::pair<int, int> counts(const std::string& log) {
    std::smatch found;
    if (!std::regex_search(log, found, std::regex("GPU: (\\d+) graphs launched, (\\d+) pieces of memory")))
      return {};
    return {std::stoi(found[1]), std::stoi(found[2])};
  }
};

TEST_F(GpuTraining, OneRankIsNearTheCpuAndItsBitsDependOnNoOrder) {
  ASSERT_EQ(start("cpu", {1, {"train.device=cpu"}, {}}).status, 0);
  const Finished done = start("gpu", {});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("device: Simulated GPU"));
  const auto expected = losses("cpu"), curve = losses("gpu");
  ASSERT_EQ(curve.size(), 6u);
  EXPECT_LT(curve.back(), curve.front() - 0.3) << "it should learn something";
  for (std::size_t i = 0; i < curve.size(); ++i) EXPECT_NEAR(curve[i], expected[i], 2e-3) << "step " << i + 1;
  EXPECT_NE(digest("gpu"), digest("cpu")) << "two devices that add up differently";
  ends_as("gpu", "other order", {1, {}, {"HOLDFAST_SIMT_SEED=77"}});
  // Every access of a kernel that it has not declared is a fault here.
  ends_as("gpu", "guarded", {1, {"train.activation_checkpointing=full"}, {"HOLDFAST_SIM_GUARD=1"}});

  const Finished shorter = start("shorter", {1, {"train.steps=2"}, {}});
  EXPECT_GT(counts(done.err).first, counts(shorter.err).first + 20) << "steps are graphs";
  EXPECT_GT(counts(done.err).second, 0);
  EXPECT_EQ(counts(done.err).second, counts(shorter.err).second)
      << "after the first steps nothing is allocated";
}

// What models may have beside the first test's.

TEST_F(GpuTraining, NormsOfHeadsAreNearTheCpu) { is_near_the_cpu("qk_norm = true\n"); }
TEST_F(GpuTraining, HeadsThatAreWiderThanTheModelAreNearTheCpu) {
  is_near_the_cpu("head_dim = 16\nqk_norm = true\n");
}
TEST_F(GpuTraining, BiasesAreNearTheCpu) {
  is_near_the_cpu("qkv_bias = true\no_bias = true\nmlp_bias = true\n");
}
TEST_F(GpuTraining, ABlockWithoutPositionsIsNearTheCpu) { is_near_the_cpu("nope_every = 2\n"); }
TEST_F(GpuTraining, FusedTensorsAreNearTheCpu) { is_near_the_cpu("fused = true\n"); }
TEST_F(GpuTraining, FactorsAreNearTheCpu) {
  is_near_the_cpu(
      "embedding_multiplier = 12.0\nattention_multiplier = 0.25\nresidual_multiplier = 0.22\nlogits_scaling "
      "= 4.0\n");
}
TEST_F(GpuTraining, RotatedPartsOfHeadsAreNearTheCpu) {
  is_near_the_cpu(
      "head_dim = 16\nrotary_dim = 12\nrope_type = \"longrope\"\nrope_original_sequence = 64\n"
      "rope_magnitude = 1.1\nrope_short_factors = [1, 1, 1.5, 2, 3, 4]\nrope_long_factors = [1, 1, 2, 4, 8, "
      "16]\n");
}
TEST_F(GpuTraining, NormsBehindAreNearTheCpu) {
  is_near_the_cpu("qk_norm = true\nqk_norm_whole = true\nnorm_after = true\n");
}

TEST_F(GpuTraining, WindowsOfBlocksAreNearTheCpu) {
  is_near_the_cpu("window = 8\nfull_every = 2\nwindow_rope_theta = 500.0\n");
}

TEST_F(GpuTraining, DigestAndLossesAreTheSameInEveryWorldAndStrategy) {
  end_as_one_rank({
      {2, {"shard.strategy=no_shard", "train.activation_checkpointing=selective"}, {}},
      {2, {"shard.strategy=full_shard", "shard.prefetch_forward=0", "shard.prefetch_backward=2"}, {}},
      {2, {"shard.strategy=shard_grad_op", "train.activation_checkpointing=full"}, {"HOLDFAST_SIM_GUARD=1"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2", "train.activation_checkpointing=attention"}, {}},
      {4,
       {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=full",
        "shard.keep_gathered=1"},
       {}},
  });
}

TEST_F(GpuTraining, WhatProductsAddThemselvesHasTheBitsOfWhatKernelsAdd) {
  // Alone and without sharding products add gradients; in a shard group, and where somebody looks at a
  // micro-batch, kernels do.
  const std::vector<Layout> layouts = {{1, {"verify.micro_batch_every=1"}, {}},
                                       {2, {"shard.strategy=no_shard"}, {"HOLDFAST_SIM_GUARD=1"}},
                                       {2, {"shard.strategy=full_shard"}, {}}};
  for (const char* lanes : {"train.lanes=2", "train.lanes=0"}) {
    end_as_one_rank(layouts, {"precision.reduce=fp32", lanes});
    std::filesystem::remove_all(folder_ / "one");
    for (std::size_t i = 0; i < layouts.size(); ++i)
      std::filesystem::remove_all(folder_ / ("run" + std::to_string(i)));
  }
}

TEST_F(GpuTraining, DigestAndLossesAreTheSameOnSeveralNodes) {
  end_as_one_rank({
      {2, {"shard.strategy=no_shard"}, {"HOLDFAST_SIM_NODE_RANKS=1"}},
      {2,
       {"shard.strategy=full_shard", "train.activation_checkpointing=full"},
       {"HOLDFAST_SIM_NODE_RANKS=1"}},
      // Shard groups inside a node, replicas between nodes: a GPU for each node.
      {4, {"shard.strategy=hfsdp", "shard.group=2"}, {"HOLDFAST_SIM_NODE_RANKS=2"}},
      {4, {"shard.strategy=hybrid_shard", "shard.group=2"}, {"HOLDFAST_SIM_NODE_RANKS=2"}},
      {4,
       {"shard.strategy=full_shard", "shard.prefetch_forward=2", "shard.prefetch_backward=0"},
       {"HOLDFAST_SIM_NODE_RANKS=2", "HOLDFAST_SHARE_GPU=0"}},
  });
}

TEST_F(GpuTraining, AdaptersWithDropoutAreTheSameInEveryWorld) {
  end_as_one_rank(
      {{1, {"train.activation_checkpointing=full"}, {"HOLDFAST_SIM_GUARD=1", "HOLDFAST_SIMT_SEED=77"}},
       {2, {"shard.strategy=full_shard", "train.activation_checkpointing=attention"}, {}},
       {4, {"shard.strategy=hfsdp", "shard.group=2"}, {"HOLDFAST_SIM_NODE_RANKS=2"}}},
      {"lora.rank=8", "lora.dropout=0.2", "lora.targets=[\"q_proj\", \"v_proj\", \"down_proj\"]",
       "lora.base=nf4"});
}

TEST_F(GpuTraining, MomentsOnTheHostEvaluationsAndTracesChangeNoBit) {
  write_tokens("held.bin", vocabulary, 500);
  const Sets watched = {"eval.every=2", "data.validation=" + path("held.bin"), "eval.samples=5",
                        "trace.first=3", "trace.count=2"};
  Sets both = watched;
  both.insert(both.end(), {"shard.offload=moments", "shard.strategy=hfsdp", "shard.group=1"});
  end_as_one_rank({{1, {"shard.offload=moments"}, {}}, {1, watched, {}}, {2, both, {}}});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run2" / "trace" / "rank-00001.json"));
  const Finished free = start("free", {1, {"train.deterministic=false"}, {}});
  EXPECT_EQ(free.status, 0) << free.err;
  EXPECT_LT(losses("free").back(), losses("free").front() - 0.3);
}

/// Snapshots are copied beside the next step, and change no bit of it; a run goes on from them.
TEST_F(GpuTraining, LocalSnapshotsChangeNoBitAndBringAKilledRunBack) {
  std::filesystem::create_directory(folder_ / "local");
  const std::string local = "checkpoint.local=" + path("local");
  end_as_one_rank(
      {{1, {local}, {"HOLDFAST_SIM_GUARD=1"}},
       {1, {local, "shard.offload=moments"}, {}},
       {2,
        {local, "shard.strategy=full_shard", "checkpoint.local_every=2", "checkpoint.partner_every=2"},
        {}},
       {2, {local, "shard.strategy=hfsdp", "shard.group=1"}, {}}},
      {"checkpoint.every=0"});
  const Layout layout = {2, {local, "shard.strategy=full_shard", "checkpoint.every=0"}, {}};
  Layout killed = layout;
  killed.environment = {"HOLDFAST_SIM_FAULT=die 1 70"};  // in step 5
  EXPECT_NE(start("run", killed).status, 0);
  EXPECT_TRUE(files::list(folder_ / "run" / "checkpoints").empty());
  const Finished done = start("run", layout);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, ContainsRegex("training resumes from snapshots of step [34],"));
  EXPECT_EQ(digest("run"), digest("one"));
  EXPECT_EQ(losses("run"), losses("one"));
}

/// A state of 52 MB. Without a local level the host pins one copy of it, for saves and restores alike, and a
/// window of 16 MiB.
TEST_F(GpuTraining, WithoutALocalLevelOneCopyOfTheStateIsPinnedOnTheHost) {
  constexpr std::int64_t words = 16384;
  write_tokens("wide.bin", words, 500);
  write("model.toml",
        "[model]\nname = \"wide\"\nvocabulary = 16384\nwidth = 128\nlayers = 1\nheads = 4\nkv_heads = 2\nffn "
        "= 128\nmax_sequence = 64\n");
  const Sets wide = {"data.tokens=" + path("wide.bin"),
                     "train.sequence=8",
                     "train.global_batch=2",
                     "train.micro_batch=1",
                     "train.lanes=2",
                     "train.steps=2"};
  const auto with = [&](Sets sets) { return sets.insert(sets.begin(), wide.begin(), wide.end()), sets; };
  const auto pinned = [](const std::string& log) {
    std::smatch found;
    return std::regex_search(log, found, std::regex(", (\\d+) bytes of host memory pinned"))
               ? std::stoll(found[1])
               : -1;
  };
  constexpr std::int64_t window = 16 << 20, beside = 12 << 20, state = 51'000'000, copy = state + (1 << 20);
  const Finished none = start("none", {1, with({"checkpoint.every=0"}), {}});
  ASSERT_EQ(none.status, 0) << none.err;
  EXPECT_GE(pinned(none.err), window + state);
  EXPECT_LE(pinned(none.err), window + beside + copy);

  const Finished saves = start("saves", {1, with({"checkpoint.every=1"}), {}});
  ASSERT_EQ(saves.status, 0) << saves.err;
  EXPECT_EQ(pinned(saves.err), pinned(none.err));
  EXPECT_EQ(digest("saves"), digest("none"));

  const auto restored =
      std::vector<Sets>{{"checkpoint.every=0"}, {"checkpoint.every=0", "shard.offload=moments"}};
  for (std::size_t i = 0; i < restored.size(); ++i) {
    const std::string dir = "restored" + std::to_string(i);
    Sets sets = with(restored[i]);
    sets.push_back("run.resume=" + checkpoint("saves", 1).string());
    const Finished done = start(dir, {1, sets, {}});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step 1"));
    EXPECT_LE(pinned(done.err), window + beside + copy + (i == 0 ? 0 : 2 * state / 3 + (1 << 20)));
    EXPECT_EQ(digest(dir), digest("none"));
  }
}

TEST_F(GpuTraining, RollsBackAsOneRankDoes) {
  const Sets jumpy = {"train.steps=10",         "optim.schedule=constant", "optim.warmup_steps=0",
                      "optim.lr=2e-2",          "checkpoint.every=4",      "guard.window=4",
                      "guard.norm_factor=1.12", "guard.max_skips=50",      "guard.on_spike=rollback"};
  const Finished alone = start("one", {1, jumpy, {}});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("the run was rolled back to step 4"));
  Sets sharded = jumpy;
  sharded.push_back("shard.strategy=full_shard");
  ends_as("one", "two", {2, sharded, {}});
}

TEST_F(GpuTraining, EightBitProducts) {
  for (const std::string scaling : {"delayed", "current"}) {
    const Sets fp8 = {"precision.products=fp8", "fp8.scaling=" + scaling, "fp8.history=3"};
    const auto with = [&](Sets sets) { return sets.insert(sets.end(), fp8.begin(), fp8.end()), sets; };
    ASSERT_EQ(start("cpu " + scaling, {1, with({"train.device=cpu"}), {}}).status, 0);
    ASSERT_EQ(start(scaling, {1, with({}), {}}).status, 0);
    const auto expected = losses("cpu " + scaling), curve = losses(scaling);
    for (std::size_t i = 0; i < curve.size(); ++i) EXPECT_NEAR(curve[i], expected[i], 2e-3) << scaling;
    ends_as(scaling, scaling + " guarded",
            {2,
             with({"shard.strategy=full_shard", "train.activation_checkpointing=full"}),
             {"HOLDFAST_SIM_GUARD=1"}});
    // Copies of weights that are kept for a step (issue 39).
    ends_as(scaling, scaling + " kept",
            {1, with({"shard.keep_gathered=all", "shard.keep_across_micro_steps=true"}), {}});
    ends_as(scaling, scaling + " kept, sharded",
            {2,
             with({"shard.strategy=shard_grad_op", "shard.keep_across_micro_steps=true",
                   "train.activation_checkpointing=selective", "verify.micro_batch_every=2"}),
             {"HOLDFAST_SIM_GUARD=1"}});
  }
  ends_as("delayed", "nodes",
          {2,
           {"precision.products=fp8", "fp8.scaling=delayed", "fp8.history=3", "shard.strategy=hfsdp",
            "shard.group=1"},
           {"HOLDFAST_SIM_NODE_RANKS=1"}});
  EXPECT_NE(digest("delayed"), digest("current"));
}

/// A search by timing finds something else each time; what it found first stays with the run.
TEST_F(GpuTraining, AKilledRunGoesOnInAnotherWorldWithTheAlgorithmsItBeganWith) {
  ASSERT_EQ(start("whole", {}).status, 0);
  ASSERT_EQ(start("lucky", {1, {}, {"HOLDFAST_SIM_LUCK=2"}}).status, 0);
  EXPECT_NE(algorithms("lucky"), algorithms("whole"));
  // Not the digest: on some processors so small a difference is gone when gradients are rounded to bf16.
  EXPECT_NE(losses("lucky"), losses("whole")) << "the choice of algorithms decides bits";

  const Finished killed =
      start("run", {2, {"shard.strategy=full_shard"}, {"HOLDFAST_SIM_FAULT=die 1 70"}});  // in step 5
  EXPECT_NE(killed.status, 0);
  EXPECT_THAT(killed.err, HasSubstr("signal 9"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 6)));
  const Layout other = {4, {"shard.strategy=hfsdp", "shard.group=2"}, {"HOLDFAST_SIM_LUCK=2"}};
  std::filesystem::copy(folder_ / "run", folder_ / "bare", std::filesystem::copy_options::recursive);
  const Finished done = start("run", other);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step"));
  EXPECT_EQ(algorithms("run"), algorithms("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  EXPECT_EQ(losses("run"), losses("whole"));

  // A run that begins with another's checkpoint takes them along.
  const Layout fork = {1, {"run.resume=" + checkpoint("whole", 4).string()}, {"HOLDFAST_SIM_LUCK=2"}};
  const Finished forked = start("fork", fork);
  ASSERT_EQ(forked.status, 0) << forked.err;
  EXPECT_THAT(forked.err, HasSubstr("algorithms were taken over"));
  EXPECT_EQ(digest("fork"), digest("whole"));

  // Without them it would not be the same run.
  std::filesystem::remove(folder_ / "bare" / "tuning.json");
  const Finished refused = start("bare", other);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("was computed with other arithmetic"), HasSubstr("was \"choices "),
                                 HasSubstr("Put the tuning.json of the run that made it")));
  std::filesystem::copy_file(folder_ / "run" / "tuning.json", folder_ / "bare" / "tuning.json",
                             std::filesystem::copy_options::overwrite_existing);
  ends_as("whole", "bare", {1, {}, {"HOLDFAST_SIM_LUCK=3"}});
}

// ---- failures

/// What does not fit is named, and what to change. Here the kernels' own memory leaves 1 MB and less.
TEST_F(GpuTraining, AGpuThatIsTooSmall) {
  struct Limit {
    const char *bytes, *sentence, *hint;
  };
  for (const auto& [bytes, sentence, hint] :
       {Limit{"1000000", "no room on the GPU for the kernels' intermediate sums (40.00 MiB are needed", ""},
        Limit{"42000000", "of memory that the ranks' GPUs share", "Gathered parameters and gradients"},
        Limit{"42500000", "no room on the GPU for weights, gradients and activations",
              "checkpoint more activations"},
        Limit{"43100000", "no room on the GPU for the moments", "shard.offload"}}) {
    const Finished done = start("run", {1, {}, {std::string("HOLDFAST_SIM_MEMORY=") + bytes}});
    EXPECT_EQ(done.status, 1);
    EXPECT_THAT(done.err, AllOf(HasSubstr(sentence), HasSubstr(hint)));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "metrics.jsonl"));
  }
  const Finished nodes =
      start("run", {2, {}, {"HOLDFAST_SIM_MEMORY=100000000", "HOLDFAST_SIM_NODE_RANKS=1"}});
  EXPECT_EQ(nodes.status, 1);
  EXPECT_THAT(nodes.err, HasSubstr("no room on the GPU for what comes from other nodes (64.00 MiB for "));
}

TEST_F(GpuTraining, WhatAGpuCannotDoIsRefusedBeforeTraining) {
  const Finished type = start("run", {1, {"precision.parameters=fp32", "precision.reduce=fp32"}, {}});
  EXPECT_EQ(type.status, 2);
  EXPECT_THAT(type.err, HasSubstr("precision.parameters = \"bf16\"?"));
  const Finished absent = start("run", {2, {}, {"HOLDFAST_CUDA_MODULE=" + path("nothing.so")}});
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.err, HasSubstr("there is no CUDA backend (looked for " + path("nothing.so") + ")"));
  write("text.so", "no library");
  const Finished text = start("run", {1, {}, {"HOLDFAST_CUDA_MODULE=" + path("text.so")}});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.err, HasSubstr("the CUDA backend cannot be loaded"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "metrics.jsonl"));
}

/// The checks that the tests above rely on are there.
TEST_F(GpuTraining, StreamsThatDoNotWaitForEachOtherAreFound) {
  const Finished done = start("run", {2, {"shard.strategy=full_shard"}, {"HOLDFAST_SIM_FAULT=wait 0 20"}});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("and nothing orders them"));
}

class GpuFailures : public GpuTraining {
 protected:
  /// Behind 40 graphs, in step 2 or 3, on rank 1. Nothing is waited for longer than 5 s.
  Finished with_fault(const std::string& kind, int world, Environment more = {}) const {
    more.push_back("HOLDFAST_SIM_FAULT=" + kind + " 1 40");
    const Sets sets = {"shard.strategy=hybrid_shard", "shard.group=2", "supervise.step_s=2",
                       "checkpoint.commit_s=1"};
    const Finished done = start("run", {world, sets, more});
    EXPECT_FALSE(done.timed_out);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "result.json"));
    return done;
  }
  static constexpr const char* late =
      "error rank 0: (all-gather|ordered reduce-scatter) #[0-9]+ over shard group 0 .(gathers|reductions). "
      "did not finish within 5 s .";
};

/// Whoever speaks first ends the other through MPI: either sentence names the rank and its cause.
TEST_F(GpuFailures, AGpuThatDisappears) {
  const Finished done = with_fault("gpu", 2);
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err,
              ContainsRegex("error rank (1: |0: rank 1 has given up shard group 0 .(gathers|reductions). .)"
                            "the simulated GPU has failed .it has fallen off the bus"));
}

TEST_F(GpuFailures, AGpuThatDisappearsOnAnotherNode) {
  const Finished done = with_fault("gpu", 2, {"HOLDFAST_SIM_NODE_RANKS=1"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("error rank 1: the simulated GPU has failed (it has fallen off the bus)"));
}

/// What is wrong is said before anything is torn down, and a rank that cannot give its GPU back leaves.
TEST_F(GpuFailures, AGpuThatDoesNotGiveItsMemoryBack) {
  const Finished done =
      start("run", {1, {"checkpoint.commit_s=1", "supervise.step_s=2"}, {"HOLDFAST_SIM_FAULT=free 0 20"}});
  EXPECT_FALSE(done.timed_out);
  EXPECT_EQ(done.status, 1);
  const auto said = done.err.find(
                 "error holdfast-train: the simulated GPU has failed (it has fallen off the bus)"),
             left = done.err.find("the GPU is not given back within 11 s");
  EXPECT_NE(said, std::string::npos) << done.err;
  EXPECT_NE(left, std::string::npos) << done.err;
  EXPECT_LT(said, left);
}

TEST_F(GpuFailures, ARankThatHangs) {
  const Finished done = with_fault("hang", 4);
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, ContainsRegex(std::string(late) + "rank 1 has"));
}

TEST_F(GpuFailures, ARankThatHangsOnAnotherNode) {
  const Finished done = with_fault("hang", 2, {"HOLDFAST_SIM_NODE_RANKS=1"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err,
              ContainsRegex(std::string(late) + "NCCL does not say which of ranks 0, 1 it waits for"));
}

/// Nobody ends the others here: they find out by themselves.
TEST_F(GpuFailures, EverybodyHearsOfARankThatDies) {
  const Finished done = with_fault("die", 4, {"OMPI_MCA_orte_enable_recovery=1"});
  EXPECT_THAT(done.err, ContainsRegex(std::string(late) + "rank 1 has"));
  for (const char* rank : {"2", "3"})
    EXPECT_THAT(done.err,
                ContainsRegex(std::string("error rank ") + rank + ": .*(shard group|replicas of part)"));
}

}  // namespace
}  // namespace holdfast::train

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "src/config/load.hpp"
#include "src/config/numerics.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using testing::HasSubstr;

RunConfig good() {
  RunConfig c;
  c.cluster.nodes = 2;
  c.cluster.ranks_per_node = 2;
  c.train.sequence = 128;
  return c;
}

void eight_bit(RunConfig& c) {
  c.precision.products = Products::fp8;
  c.precision.parameters = Precision::bf16;
}

TEST(Check, FindsAllContradictionsAtOnce) {
  RunConfig c = good();
  c.optim.beta1 = 2;
  c.guard.on_nan = GuardAction::report;
  c.checkpoint.local = "here";
  const auto refused = refusals_of(c, {});
  ASSERT_EQ(refused.size(), 3u);
  EXPECT_THAT(refused.back().what(), HasSubstr("checkpoint.local must be an absolute path"));
  c.train.micro_batch = 0;
  EXPECT_EQ(refusals_of(c, {}).size(), 1u) << "the others divide by it";
}

struct Refused {
  const char* says;
  std::function<void(RunConfig&, ModelShape&)> spoil;
};

TEST(Check, SaysWhatIsWrongAndWhatToDo) {
  const std::vector<Refused> cases = {
      {"cluster.nodes must be at least 1 (it is 0)", [](auto& c, auto&) { c.cluster.nodes = 0; }},
      {"cluster.spares must not be negative (it is -1). Use 0",
       [](auto& c, auto&) { c.cluster.spares = -1; }},
      {"cluster.ranks_per_node must not be negative", [](auto& c, auto&) { c.cluster.ranks_per_node = -1; }},
      {"supervise.node_silence_ms is too short (500 ms of silence is less than three heartbeats of 200 ms",
       [](auto& c, auto&) { c.supervise.node_silence_ms = 500; }},
      {"supervise.leader_silence_ms is too short",
       [](auto& c, auto&) { c.supervise.leader_silence_ms = 599; }},
      {"supervise.min_nodes is larger than cluster.nodes",
       [](auto& c, auto&) { c.supervise.min_nodes = c.cluster.nodes + 1; }},
      {"supervise.when_short = \"shrink\" needs supervise.min_nodes",
       [](auto& c, auto&) { c.supervise.when_short = WhenShort::shrink; }},
      {"run.resume and model.weights both say what the run begins with",
       [](auto& c, auto&) { c.run.resume = "/a/step-00000001", c.model.weights = "/b"; }},
      {"rank.command is empty", [](auto& c, auto&) { c.rank.command.clear(); }},
      {"rank.buffers_gib is for other programs", [](auto& c, auto&) { c.rank.buffers_gib = 1; }},
      {"rank.warm is for a Python program (rank.command is not a Python interpreter with a script or with -m "
       "and a "
       "module). Leave it out?",
       [](auto& c, auto&) {
         c.rank.command = {"sh", "train.sh"};
         c.rank.warm = {"torch"};
       }},
      {"rank.warm holds what is no module ('torch; x')",
       [](auto& c, auto&) {
         c.rank.command = {"python3", "train.py"};
         c.rank.warm = {"torch.nn", "torch; x"};
       }},
      {"rank.environment holds an entry without a name ('=x')",
       [](auto& c, auto&) {
         c.rank.environment = {"A=", "=x"};
       }},
      {"[container] says how an image is used, and names none",
       [](auto& c, auto&) { c.container.writable = true; }},
      {"container.mounts holds '/a,/b', which cannot be mounted",
       [](auto& c, auto&) {
         c.container.image = "x";
         c.container.mounts = {"/a,/b"};
       }},
      {"container.mounts holds '/a:b', which cannot be mounted",
       [](auto& c, auto&) {
         c.container.image = "x";
         c.container.mounts = {"/a", "/a:b"};
       }},
      {"container.workdir is not an absolute path",
       [](auto& c, auto&) {
         c.container.image = "x";
         c.container.workdir = "w";
       }},
      {"container.extra holds --container-image (there is a setting for it). Set container.image?",
       [](auto& c, auto&) {
         c.container.image = "x";
         c.container.extra = {"--container-image=y"};
       }},
      {"container.extra holds 'x', which is no option of srun",
       [](auto& c, auto&) {
         c.container.image = "x";
         c.container.extra = {"x"};
       }},
      {"shard.group does not divide the number of ranks (2 nodes x 2 ranks = 4 ranks, group 3)",
       [](auto& c, auto&) { c.shard.group = 3; }},
      {"shard.group must not be negative", [](auto& c, auto&) { c.shard.group = -2; }},
      {"the micro-batches of a step are not a whole number of lanes (8 micro-batches, 3 lanes). Use "
       "train.global_batch = 9?",
       [](auto& c, auto&) { c.train.lanes = 3; }},
      {"there are too few lanes for the replicas (1 lanes of 8 micro-batches, 2 replicas of 2 ranks",
       [](auto& c, auto&) { c.train.lanes = 1; }},
      {"the micro-batches of a step are not a multiple of the ranks of a shard group (7 micro-batches, "
       "groups "
       "of 2 ranks; they compute equally many). Use train.global_batch = 8?",
       [](auto& c, auto&) { c.train.global_batch = 7; }},
      {"there are fewer micro-batches than ranks (1 micro-batches, 4 ranks; each rank computes at least one "
       "in "
       "a step). Use train.global_batch = 4, or fewer ranks?",
       [](auto& c, auto&) { c.train.global_batch = 1, c.shard.strategy = Strategy::no_shard; }},
      {"train.micro_batch does not divide train.global_batch (the 8 sequences of a step are no whole number "
       "of "
       "micro-batches of 3). Use train.global_batch = 9?",
       [](auto& c, auto&) { c.train.micro_batch = 3; }},
      {"the micro-batches of a step are not a multiple of the ranks of a shard group (9 micro-batches, "
       "groups "
       "of 2 ranks; they compute equally many). Use train.global_batch = 40?",
       [](auto& c, auto&) { c.train.global_batch = 36, c.train.micro_batch = 4; }},
      {"train.sequence is out of range (it is 513; model tiny takes 1 to 512 tokens)",
       [](auto& c, auto&) { c.train.sequence = 513; }},
      {"train.steps must be at least 1", [](auto& c, auto&) { c.train.steps = 0; }},
      {"checkpoint.every must not be negative", [](auto& c, auto&) { c.checkpoint.every = -1; }},
      {"optim.min_lr is above optim.lr", [](auto& c, auto&) { c.optim.min_lr = 1; }},
      {"optim.beta1 and beta2 must be below 1", [](auto& c, auto&) { c.optim.beta2 = 1; }},
      {"optim.epsilon must be above 0", [](auto& c, auto&) { c.optim.epsilon = 0; }},
      {"optim.warmup_steps is more than train.steps (10 > 5)", [](auto& c, auto&) { c.train.steps = 5; }},
      {"optim.warmup_steps is more than train.steps (60 > 50)",
       [](auto& c, auto&) { c.train.steps = 50, c.optim.warmup_steps = 60; }},
      {"warmup and decay are longer than the run (95 steps of warmup and 10 of decay, 100 in all)",
       [](auto& c, auto&) { c.optim.schedule = Schedule::wsd, c.optim.warmup_ratio = 0.95; }},
      {"train.epochs is set, and a mixture has no epochs (the weights of the 2 parts of data.mixture",
       [](auto& c, auto&) {
         c.train.epochs = 1;
         c.data.mixture = {"a 1", "b 2"};
       }},
      {"eval.patience is set but nothing is evaluated (eval.every is 0)",
       [](auto& c, auto&) { c.eval.patience = 2; }},
      {"eval.keep_best is set but nothing is evaluated", [](auto& c, auto&) { c.eval.keep_best = true; }},
      {"eval.min_delta is of eval.patience only (it is 0.1",
       [](auto& c, auto&) {
         c.eval.every = 1;
         c.data.validation = {"x.tokens"};
         c.eval.min_delta = 0.1;
       }},
      {"eval.every is set but there is nothing to evaluate on (data.validation is empty)",
       [](auto& c, auto&) { c.eval.every = 5; }},
      {"precision.buffers = bf16 contradicts precision.parameters = fp32",
       [](auto& c, auto&) {
         c.precision.buffers = Precision::bf16;
         c.precision.parameters = Precision::fp32;
       }},
      {"precision.moments = bf16 contradicts optim.beta2 = 0.999 (a step moves the moment by 0.001 of itself",
       [](auto& c, auto&) { c.precision.moments = Precision::bf16, c.optim.beta2 = 0.999; }},
      {"precision.moments = bf16 contradicts optim.beta1 = 0.998",
       [](auto& c, auto&) { c.precision.moments = Precision::bf16, c.optim.beta1 = 0.998; }},
      {"precision.products = fp8 contradicts precision.parameters = fp32",
       [](auto& c, auto&) {
         c.precision.products = Products::fp8;
         c.precision.parameters = Precision::fp32;
       }},
      {"fp8 needs sizes that are multiples of 16, and train.micro_batch * train.sequence is not (it is 72)",
       [](auto& c, auto&) {
         eight_bit(c);
         c.train.sequence = 24;
         c.train.global_batch = 24;
         c.train.micro_batch = 3;
       }},
      {"fp8 needs sizes that are multiples of 16, and model.ffn is not (it is 344)",
       [](auto& c, auto& m) { eight_bit(c), m.ffn = 344; }},
      {"fp8 needs sizes that are multiples of 16, and the width of q, k and v is not (it is 200)",
       [](auto& c, auto& m) { eight_bit(c), m.width = 160, m.heads = 16, m.kv_heads = 2, m.ffn = 352; }},
      {"fp8.margin is of delayed scaling only (it is 1",
       [](auto& c, auto& m) {
         eight_bit(c);
         m.ffn = 352;
         c.fp8.scaling = Scaling::current;
         c.fp8.margin = 1;
       }},
      {"optim.decay_steps is of the wsd schedule only (it is 5",
       [](auto& c, auto&) { c.optim.decay_steps = 5; }},
      {"warmup and decay are longer than the run (10 steps of warmup and 91 of decay, 100 in all). Use "
       "optim.warmup_steps = 9?",
       [](auto& c, auto&) { c.optim.schedule = Schedule::wsd, c.optim.decay_steps = 91; }},
      {"(91 steps of warmup and 10 of decay, 100 in all). Use optim.warmup_steps = 90?",
       [](auto& c, auto&) { c.optim.schedule = Schedule::wsd, c.optim.warmup_steps = 91; }},
      {"optim.groups: \"* lr_scale\" is not a group (lr_scale has no value)",
       [](auto& c, auto&) { c.optim.groups = {"* lr_scale"}; }},
      {"optim.groups: \"model.layers.9.*\" is the group of no tensor (no name of model tiny matches it",
       [](auto& c, auto&) { c.optim.groups = {"model.layers.9.* lr_scale=2"}; }},
      {"optim.groups: \"lm_head*\" is the group of no tensor",
       [](auto& c, auto&) {
         c.optim.groups = {"* weight_decay=0", "lm_head* lr_scale=2"};
       }},
      {"guard.on_spike is set but nothing counts as a spike",
       [](auto& c, auto&) { c.guard.on_spike = GuardAction::skip; }},
      {"the guard cannot roll back (checkpoint.every is 0",
       [](auto& c, auto&) { c.guard.on_nan = GuardAction::rollback, c.checkpoint.every = 0; }},
      {"the guard cannot roll back",
       [](auto& c, auto&) {
         c.guard.on_spike = GuardAction::rollback;
         c.guard.norm_factor = 3;
         c.checkpoint.every = 0;
       }},
      {"guard.on_nan cannot be report", [](auto& c, auto&) { c.guard.on_nan = GuardAction::report; }},
      {"shard.group = 2 contradicts shard.strategy = full_shard (its groups are of 4, in a world of 4)",
       [](auto& c, auto&) { c.shard.strategy = Strategy::full_shard, c.shard.group = 2; }},
      {"shard.group = 2 contradicts shard.strategy = no_shard (its groups are of 1",
       [](auto& c, auto&) { c.shard.strategy = Strategy::no_shard, c.shard.group = 2; }},
      {"shard.group does not divide the number of ranks (2 nodes x 2 ranks = 4 ranks, group 3)",
       [](auto& c, auto&) { c.shard.strategy = Strategy::hfsdp, c.shard.group = 3; }},
      {"there are too few lanes for the replicas (2 lanes of 4 micro-batches, 4 replicas of 1 ranks",
       [](auto& c, auto&) { c.shard.strategy = Strategy::hfsdp, c.shard.group = 1, c.train.lanes = 2; }},
      {"shard.keep_across_micro_steps is set but no block is kept",
       [](auto& c, auto&) { c.shard.keep_across_micro_steps = true; }},
      {"shard.keep_gathered cannot be \"0,2\" (the model's blocks are 0 to 1)",
       [](auto& c, auto&) { c.shard.keep_gathered = "0,2"; }},
      {"model tiny: rope_low_frequency is not below rope_high_frequency",
       [](auto&, auto& m) { m.rope_low_frequency = 4; }},
      {"heads does not divide width (4 heads, width 66)", [](auto&, auto& m) { m.width = 66; }},
      {"the head size is odd (width 60 / 4 heads = 15", [](auto&, auto& m) { m.width = 60; }},
      {"kv_heads does not divide heads (4 heads, 3 kv_heads)", [](auto&, auto& m) { m.kv_heads = 3; }},
      {"a size of model tiny is not positive", [](auto&, auto& m) { m.layers = 0; }},
      {"model tiny: full_every without window", [](auto&, auto& m) { m.full_every = 4; }},
      {"model tiny: window_rope_theta without window", [](auto&, auto& m) { m.window_rope_theta = 500; }},
      {"model tiny: full_every is 1", [](auto&, auto& m) { m.window = 16, m.full_every = 1; }},
      {"model tiny: window_rope_theta 0.5 is below 1",
       [](auto&, auto& m) { m.window = 16, m.window_rope_theta = 0.5; }},
  };
  check(good(), {});
  for (const auto& c : cases) {
    SCOPED_TRACE(c.says);
    RunConfig config = good();
    ModelShape model;
    c.spoil(config, model);
    const auto refusal = test::refusal_of([&] { check(config, model); });
    EXPECT_THAT(refusal.text, HasSubstr(c.says));
    EXPECT_EQ(refusal.exit, Exit::usage);
  }
}

TEST(Check, WhatMayBeCombined) {
  const std::vector<std::function<void(RunConfig&)>> fine = {
      [](auto& c) { c.precision.reduce = Precision::bf16; },
      [](auto& c) { c.precision.moments = Precision::bf16; },
      [](auto& c) { c.precision.parameters = c.precision.buffers = Precision::bf16; },
      [](auto& c) { c.shard.strategy = Strategy::full_shard, c.shard.group = 4; },
      [](auto& c) { c.shard.strategy = Strategy::shard_grad_op, c.shard.keep_across_micro_steps = true; },
      [](auto& c) { c.shard.strategy = Strategy::hfsdp, c.shard.group = 2; },
      [](auto& c) { c.shard.prefetch_forward = 3, c.shard.gathered_limit = 2; },
      [](auto& c) { c.shard.prefetch_forward = c.shard.prefetch_backward = 16; },
      [](auto& c) { c.optim.schedule = Schedule::wsd, c.optim.decay_steps = 90; },
      [](auto& c) { c.guard.on_spike = GuardAction::rollback, c.guard.loss_factor = 3; },
      [](auto& c) { c.eval.every = 1, c.data.validation = {"x.tokens"}; },
      [](auto& c) {
        c.optim.groups = {"*norm* weight_decay=0.1", "model.embed_tokens* lr_scale=0.5"};
      },
  };
  for (std::size_t i = 0; i < fine.size(); ++i) {
    SCOPED_TRACE(i);
    RunConfig c = good();
    fine[i](c);
    EXPECT_NO_THROW(check(c, {}));
  }
}

TEST(Check, ResolveFillsWhatWasLeftOpen) {
  ClusterFacts facts;
  facts.gpus_per_node = 8;
  RunConfig c;
  c.cluster.nodes = 3;
  const auto hybrid = resolve(c, facts);
  EXPECT_EQ(hybrid.cluster.ranks_per_node, 8);
  EXPECT_EQ(hybrid.shard.group, 8);
  EXPECT_EQ(hybrid.train.lanes, 8) << "one per micro-batch, on however many ranks";
  c.shard.strategy = Strategy::hfsdp;
  EXPECT_EQ(resolve(c, facts).shard.group, 8);
  EXPECT_EQ(resolve(c, facts).train.lanes, 8);
  c.shard.strategy = Strategy::shard_grad_op;
  EXPECT_EQ(resolve(c, facts).shard.group, 0);
  EXPECT_EQ(shard_group_of(resolve(c, facts), 24), 24);
  c.shard.strategy = Strategy::full_shard;
  EXPECT_EQ(resolve(c, facts).train.lanes, 8);
  EXPECT_EQ(shard_group_of(resolve(c, facts), 24), 24);
  c.shard.strategy = Strategy::no_shard;
  c.train.lanes = 48;
  EXPECT_EQ(resolve(c, facts).train.lanes, 48);
}

TEST(Check, JobsForGpusComputeInBf16) {
  ClusterFacts gpus, cpus;
  gpus.gpu = "h100";
  gpus.gpus_per_node = cpus.gpus_per_node = 8;
  const auto resolved = [](const ClusterFacts& facts, Device device, Precision asked = Precision::automatic) {
    RunConfig c;
    c.train.device = device;
    c.precision.parameters = asked;
    return resolve(c, facts).precision.parameters;
  };
  EXPECT_EQ(resolved(gpus, Device::automatic), Precision::bf16);
  EXPECT_EQ(resolved(gpus, Device::cpu), Precision::fp32);
  EXPECT_EQ(resolved(cpus, Device::automatic), Precision::fp32);
  EXPECT_EQ(resolved(cpus, Device::cuda), Precision::bf16);
  EXPECT_EQ(resolved(gpus, Device::automatic, Precision::fp32), Precision::fp32) << "check_gpu refuses it";
  RunConfig c = resolve({}, gpus);
  check_gpu(c, {});
  c.precision.parameters = Precision::fp32;
  EXPECT_EQ(
      test::refusal_of([&] { check_gpu(c, {}); }).text,
      "attention on the GPU computes in bf16 only (the parameters' precision makes its activations another "
      "type). Set precision.parameters = \"bf16\"?");
  c.precision.parameters = Precision::bf16;
  ModelShape wide;
  wide.width = 1024;
  wide.heads = wide.kv_heads = 4;
  EXPECT_THAT(test::refusal_of([&] { check_gpu(c, wide); }).text,
              HasSubstr("attention on the GPU has no heads of 256 elements"));
}

TEST(Check, WhatAnotherProgramComputesIsItsBusiness) {
  RunConfig c = good();
  c.cluster.nodes = 64;
  EXPECT_THAT(test::refusal_of([&] { check(c, {}); }).text, HasSubstr("fewer micro-batches than ranks"));
  c.rank.command = {"python3", "train.py"};
  check(c, {});
}

TEST(Numerics, ACheckpointsIdentityIsComparedAsFarAsSettingsSayIt) {
  RunConfig c = resolve(good(), {});
  const std::string mine = arithmetic_of(c);
  EXPECT_EQ(mine, "leaf 1x128, 8 leaves in 8 lanes, parameters fp32 reduce fp32 buffers fp32 moments fp32");
  EXPECT_EQ(arithmetic_in(mine + ", cpu fp32 1, avx512, glibc 2.36"), mine);
  c.lora.rank = 4;
  EXPECT_EQ(arithmetic_in(arithmetic_of(c) + " base 0123456789abcdef, cpu fp32 1"), arithmetic_of(c));
  EXPECT_EQ(arithmetic_in(""), "");
  RunConfig other = good();
  other.train.sequence = 64;
  EXPECT_EQ(arithmetic_difference(mine, arithmetic_of(resolve(other, {}))),
            "was \"micro-batch 1x128\", now \"micro-batch 1x64\"");
  EXPECT_EQ(arithmetic_difference(mine, mine), "");
  EXPECT_EQ(
      std::string(other_arithmetic("/c", "was \"a\", now \"b\"").what()),
      "the checkpoint /c was computed with other arithmetic than this run's (was \"a\", now \"b\"). Set it "
      "back, begin another run (run.dir), or run.other_numerics = \"continue\" and give up bit-identical "
      "results?");
}

}  // namespace
}  // namespace holdfast::config

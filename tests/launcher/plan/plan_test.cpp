#include "launcher/plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "launcher/plan/fit.hpp"
#include "launcher/plan/plan_text.hpp"
#include "launcher/plan/topology.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/slice.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/load.hpp"
#include "tests/launcher/golden.hpp"

namespace holdfast::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Inputs {
  config::RunConfig config;
  config::ModelShape model;
  config::ClusterFacts facts;
  std::vector<std::string> nodes;
  std::optional<std::string> batch_host;
  Plan plan() const { return make_plan(config, model, facts, nodes, batch_host); }
};

Inputs inputs_of(const std::string& job, const std::vector<std::string>& sets = {}) {
  Inputs in;
  in.config = config::load(job, sets).config;
  in.model = config::load_model(in.config.model.file);
  in.facts = config::load_cluster(in.config.cluster.file);
  in.nodes = hypothetical_nodes(in.facts, in.config.cluster.nodes, in.config.cluster.spares);
  return in;
}

const PlannedNode& node_called(const Plan& plan, const std::string& name) {
  for (const auto& node : plan.nodes)
    if (node.name == name) return node;
  throw std::out_of_range(name);
}

/// What the error says, as a person reads it; "": it is planned.
std::string refusal_of(const Inputs& in) {
  try {
    in.plan();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::impossible);
    return error.what();
  }
  return "";
}

std::vector<std::string> leaders_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const int i : plan.leaders) out.push_back(plan.nodes.at(i).name);
  return out;
}

TEST(Plan, QuickstartGolden) {
  test::expect_golden(to_text(inputs_of("quickstart").plan()), "plan_quickstart.txt");
}

TEST(Plan, SegmentsCountSparesToo) {
  const auto warned = [](int spares, const char* option) {
    return inputs_of("quickstart", {"cluster.spares=" + std::to_string(spares),
                                    std::string("slurm.extra=[") + option + "]"})
        .plan()
        .warnings;
  };
  const auto segments =
      Contains(HasSubstr("--segment=2 does not divide the 3 nodes of the job: with 2 spares"));
  EXPECT_THAT(warned(1, "\"--segment=2\""), segments);
  EXPECT_THAT(warned(1, "\"--segment\", \"2\""), segments);
  EXPECT_THAT(warned(2, "\"--segment=2\""), testing::Not(Contains(HasSubstr("--segment"))));
  EXPECT_THAT(warned(1, "\"--segment=x\""), testing::Not(Contains(HasSubstr("--segment"))));
}

TEST(Plan, NabuchodonosorGolden) {
  test::expect_golden(to_text(inputs_of("llama2-7b-nabuchodonosor").plan()), "plan_nabuchodonosor.txt");
}

TEST(Plan, RanksTableGolden) {
  test::expect_golden(rank_table(inputs_of("quickstart").plan()), "ranks_quickstart.txt");
}

/// What has to hold in every plan, whatever its settings.
void expect_sound(const Plan& p) {
  ASSERT_EQ(static_cast<int>(p.nodes.size()), p.active + p.spares);
  ASSERT_EQ(static_cast<int>(p.ranks.size()), p.world());
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(p.nodes.size()); ++i) {
    const auto& node = p.nodes[i];
    EXPECT_TRUE(names.insert(node.name).second);
    EXPECT_EQ(node.slot, i < p.active ? i : -1);
  }
  for (int i = 0; i < p.world(); ++i) {
    const auto& rank = p.ranks[i];
    EXPECT_EQ(rank.rank, i);
    EXPECT_EQ(rank.rank, rank.slot * p.ranks_per_node + rank.local);
    EXPECT_EQ(p.shard_group(rank.shard_group).at(rank.replica_group), i);
    EXPECT_EQ(p.replica_group(rank.replica_group).at(rank.shard_group), i);
  }
  std::set<int> leaders(p.leaders.begin(), p.leaders.end());
  EXPECT_EQ(leaders.size(), p.nodes.size());
  EXPECT_EQ(p.checkpoint_bytes, 12 * p.parameters);
  // Everybody has room for its part of every element, and for little more than that.
  const std::int64_t ranks = p.strategy == config::Strategy::hfsdp ? p.world() : p.group_size;
  EXPECT_GE(p.memory.state.parameters * ranks, 4 * p.parameters);
  EXPECT_LT(static_cast<double>(p.memory.state.parameters * ranks),
            1.02 * 4 * static_cast<double>(p.parameters));
  EXPECT_EQ(p.memory.state.optimizer, 2 * p.memory.state.parameters);
}

TEST(Plan, NabuchodonosorInMilliseconds) {
  const auto in = inputs_of("llama2-7b-nabuchodonosor");
  const auto begin = std::chrono::steady_clock::now();
  const Plan p = in.plan();
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("plan_ms", std::to_string(ms));
  EXPECT_LT(ms, 500) << "it takes about one; sanitizers are slow";
  expect_sound(p);
  EXPECT_EQ(p.world(), 992);
  EXPECT_EQ(p.replicas(), 124);
  std::map<std::string, int> active, spares;
  for (const auto& node : p.nodes) ++(node.slot < 0 ? spares : active)[node.scalable_unit];
  EXPECT_EQ(active, (std::map<std::string, int>{{"su1", 31}, {"su2", 31}, {"su3", 31}, {"su4", 31}}));
  EXPECT_EQ(spares, (std::map<std::string, int>{{"su1", 1}, {"su2", 1}, {"su3", 1}}));
  for (const auto& rank : p.ranks) {
    EXPECT_EQ(rank.rail, rank.rank % 8);
    EXPECT_EQ(rank.gpu, rank.rail);
    for (const int peer : p.replica_group(rank.replica_group)) ASSERT_EQ(p.ranks[peer].rail, rank.rail);
  }
  int borders = 0;
  for (int slot = 1; slot < p.active; ++slot)
    borders += p.nodes[slot].scalable_unit != p.nodes[as_size(slot) - 1].scalable_unit;
  EXPECT_EQ(borders, 3) << "ring neighbours share a unit";
  EXPECT_TRUE(p.warnings.empty()) << p.warnings.front();
  EXPECT_THAT(p.environment,
              Contains("NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"));
}

TEST(Plan, OtherNaturalSplitsOfNabuchodonosor) {
  for (const int active : {64, 96, 112, 120, 124, 127}) {
    auto in = inputs_of(
        "llama2-7b-nabuchodonosor",
        {"cluster.nodes=" + std::to_string(active), "cluster.spares=" + std::to_string(127 - active),
         "train.lanes=0", "train.global_batch=" + std::to_string(8 * active)});
    expect_sound(in.plan());
  }
}

TEST(Plan, StrategiesGroupsAndAccumulators) {
  struct Case {
    const char *strategy, *group, *lanes;
    int group_size, replicas;
    int sums, temporaries;  // whole gradient sums, and those of a tensor at a time
  };
  for (const Case& c : {Case{"no_shard", "0", "8", 1, 4, 1, 0},
                        {"no_shard", "0", "0", 1, 4, 1, 0},
                        {"full_shard", "0", "0", 4, 1, 1, 0},
                        {"full_shard", "0", "8", 4, 1, 1, 0},
                        {"shard_grad_op", "0", "0", 4, 1, 1, 0},
                        {"hybrid_shard", "0", "2", 2, 2, 1, 0},
                        {"hybrid_shard", "4", "1", 4, 1, 1, 0},
                        {"hybrid_shard", "4", "2", 4, 1, 1, 0},
                        {"hybrid_shard", "1", "4", 1, 4, 1, 0},
                        {"hybrid_shard", "2", "8", 2, 2, 1, 0},
                        {"hfsdp", "2", "8", 2, 2, 1, 0},
                        {"hfsdp", "1", "0", 1, 4, 1, 0}}) {
    SCOPED_TRACE(std::string(c.strategy) + " " + c.group + " " + c.lanes);
    const auto p = inputs_of("quickstart",
                             {std::string("shard.strategy=") + c.strategy,
                              std::string("shard.group=") + c.group, std::string("train.lanes=") + c.lanes})
                       .plan();
    expect_sound(p);
    EXPECT_EQ(p.group_size, c.group_size);
    EXPECT_EQ(p.replicas(), c.replicas);
    const auto& s = p.memory.state;
    const bool split = p.strategy == config::Strategy::hfsdp;
    const auto slice = split ? p.replicas() * s.parameters : s.parameters;
    std::int64_t largest = 0;
    for (const auto& t : config::stored_tensors_of(config::load_model("tiny")))
      largest = std::max(largest, slice_stride(t.elements(), c.group_size, split ? c.replicas : 1));
    EXPECT_EQ(s.accumulators - (split ? s.parameters : 0),
              (c.sums * slice + 4095) / 4096 * 4096 + c.temporaries * 4 * largest);
    EXPECT_EQ(s.copies > 0, split);
  }
}

TEST(Plan, TypesAndStrategiesChangeTheBytesTheyShould) {
  const auto memory = [](const std::vector<std::string>& sets) {
    return inputs_of("quickstart", sets).plan().memory;
  };
  const auto base = memory({});
  const auto narrow = memory({"precision.parameters=bf16"});
  EXPECT_EQ(narrow.state, base.state) << "master weights and moments stay fp32";
  EXPECT_NEAR(static_cast<double>(narrow.gathered), static_cast<double>(base.gathered) / 2, 4 * 4096)
      << "embedding, head and two blocks begin on pages";
  EXPECT_EQ(narrow.gradients, base.gradients);
  EXPECT_LT(narrow.activations, base.activations);
  EXPECT_EQ(2 * memory({"precision.moments=bf16"}).state.optimizer, base.state.optimizer);
  EXPECT_EQ(inputs_of("quickstart", {"precision.moments=bf16"}).plan().checkpoint_bytes, 8 * 1262720);
  const auto alone = memory({"shard.strategy=no_shard", "train.lanes=4", "precision.parameters=bf16"});
  EXPECT_EQ(alone.state.copies, (alone.state.parameters / 2 + 4095) / 4096 * 4096);
  EXPECT_EQ(alone.gathered, 0);

  // Of 6 units (embedding, 4 blocks, head) how many blocks have room.
  const auto blocks = [&](const std::vector<std::string>& sets) {
    const auto none = memory({"shard.prefetch_forward=0", "shard.prefetch_backward=0"}).gathered;
    const auto one = memory({}).gathered - none;
    return 1 + (memory(sets).gathered - none) / one;
  };
  EXPECT_EQ(blocks({}), 2);
  EXPECT_EQ(blocks({"shard.prefetch_forward=2"}), 3);
  EXPECT_EQ(blocks({"shard.prefetch_backward=9"}), 4);
  EXPECT_EQ(blocks({"shard.keep_gathered=0-1"}), 4);
  EXPECT_EQ(blocks({"shard.keep_gathered=all"}), 4);
  const auto zero2 = memory({"shard.strategy=shard_grad_op"}), zero3 = memory({"shard.strategy=full_shard"});
  EXPECT_EQ(zero2.state, zero3.state);
  EXPECT_GT(zero2.gathered, zero3.gathered);

  // hfsdp: state of the whole world's share, gradients of the group's.
  const auto split = memory({"shard.strategy=hfsdp"});
  // Its slices are cut again for the world, and padded for it: less than 0.5 % of so small a model.
  const auto nearly = [](std::int64_t a, std::int64_t b) {
    EXPECT_GE(a, b);
    EXPECT_LE(a - b, b / 200) << a << " and " << b;
  };
  nearly(2 * split.state.parameters, base.state.parameters);
  nearly(2 * split.state.optimizer, base.state.optimizer);
  nearly(split.state.accumulators, base.state.accumulators + split.state.parameters);
  nearly(split.state.copies, base.state.parameters);

  std::int64_t before = base.activations + 1;
  for (const char* mode : {"none", "selective", "attention", "full"}) {
    const auto bytes = memory({std::string("train.activation_checkpointing=") + mode}).activations;
    EXPECT_LT(bytes, before) << mode;
    before = bytes;
  }
}

TEST(Plan, MomentsMayLieInTheNodesMemory) {
  const auto memory = [](const char* job, const std::vector<std::string>& sets) {
    return inputs_of(job, sets).plan().memory;
  };
  const char* gpus = "llama2-7b-nabuchodonosor";
  const auto here = memory(gpus, {}), there = memory(gpus, {"shard.offload=moments"});
  EXPECT_EQ(there.offloaded, there.state.optimizer);
  EXPECT_EQ(there.needed(), here.needed() - here.state.optimizer);
  EXPECT_EQ(memory("quickstart", {"shard.offload=moments"}).offloaded, 0) << "without a GPU it is one memory";
}

TEST(Plan, SaysTypesAndStrategies) {
  const auto text = [](const std::vector<std::string>& sets) {
    return to_text(inputs_of("quickstart", sets).plan());
  };
  EXPECT_THAT(
      text({"precision.parameters=bf16", "precision.moments=bf16", "precision.reduce=bf16"}),
      HasSubstr("1,262,720 parameters, bf16, fp32 master weights, bf16 moments, gradients sent in bf16"));
  EXPECT_THAT(text({"shard.strategy=shard_grad_op"}),
              HasSubstr("blocks stay gathered from the forward to the backward pass"));
  EXPECT_THAT(text({"shard.strategy=hfsdp", "precision.parameters=bf16"}),
              testing::AllOf(HasSubstr("hfsdp: 2 groups of 2 neighbouring ranks (a node), 2 replicas"),
                             HasSubstr("each of them updates its part of these slices"),
                             HasSubstr("as bf16), optimizer")));
}

TEST(Plan, ForeseesAStepOnGpusAndSaysWhatIsMissingElse) {
  auto in = inputs_of("llama2-7b-nabuchodonosor");
  const Plan known = in.plan();
  EXPECT_TRUE(known.forecast.known());
  for (const char* said : {"  speed       about ", " s a step (", " tokens/s a GPU, ", "MFU ",
                           "  run         ", " GPU-hours", " kWh of nodes"})
    EXPECT_THAT(to_text(known), HasSubstr(said));
  auto j = to_json(known).at("forecast");
  EXPECT_EQ(j.at("missing"), "");
  EXPECT_EQ(j.at("gpu"), "H100 SXM");
  EXPECT_EQ(j.at("parts_s").size(), step_parts.size());
  EXPECT_LT(j.at("step_s").at("fast"), j.at("step_s").at("slow"));
  for (const char* number :
       {"tokens_s_gpu", "tokens_s", "mfu_causal", "mfu_palm", "gpu_hours", "kwh_gpus", "kwh_nodes"})
    EXPECT_GT(j.at(number), 0) << number;

  in.facts.gpu = "mi300x";
  const Plan unknown = in.plan();
  EXPECT_THAT(to_text(unknown),
              HasSubstr("  speed       not foreseen: the cluster file's gpu is \"mi300x\""));
  EXPECT_THAT(to_text(unknown), testing::Not(HasSubstr("GPU-hours")));
  j = to_json(unknown).at("forecast");
  for (const auto& [name, value] : j.items()) EXPECT_TRUE(name == "missing" || value.is_null()) << name;
  EXPECT_EQ(unknown.memory, known.memory) << "the rest is planned as before";
}

TEST(Plan, SaysWhichLossesItSurvivesAtWhichLevel) {
  struct Case {
    std::vector<std::string> sets;
    std::vector<SurvivedLoss> losses;
  };
  const std::string processes = "failed or hung processes, up to supervise.max_restarts",
                    job = "the whole job", node = "a lost node", same = "all 2 active nodes lost at once",
                    keeper = "a node lost together with the one that keeps its copy";
  for (const Case& c : {
           Case{{}, {{processes, "local", 1}, {node, "peer", 1}, {same, "shared", 10}, {job, "shared", 10}}},
           {{"checkpoint.local_every=5", "checkpoint.partner_every=5"},
            {{processes, "local", 5}, {node, "peer", 5}, {same, "shared", 10}, {job, "shared", 10}}},
           {{"shard.strategy=full_shard"},
            {{processes, "local", 1}, {node, "partner", 1}, {keeper, "shared", 10}, {job, "shared", 10}}},
           {{"shard.strategy=hfsdp", "checkpoint.partner_every=4"},
            {{processes, "local", 1}, {node, "partner", 4}, {keeper, "shared", 10}, {job, "shared", 10}}},
           {{"shard.strategy=full_shard", "checkpoint.partner=none"},
            {{processes, "local", 1}, {node, "shared", 10}, {job, "shared", 10}}},
           {{"cluster.nodes=1"}, {{processes, "local", 1}, {node, "shared", 10}, {job, "shared", 10}}},
           {{"shard.group=1", "cluster.nodes=4", "train.lanes=0"},
            {{processes, "local", 1}, {"up to 2 lost nodes at once", "peer", 1}, {job, "shared", 10}}},
           {{"shard.group=4", "cluster.nodes=4"},
            {{processes, "local", 1},
             {node, "peer", 1},
             {"2 nodes that hold the same lost at once", "shared", 10},
             {job, "shared", 10}}},
           {{"checkpoint.local=none"},
            {{processes, "shared", 10}, {node, "shared", 10}, {job, "shared", 10}}},
           {{"checkpoint.every=0", "checkpoint.local=none"},
            {{processes, "shared", 300}, {node, "shared", 300}, {job, "shared", 300}}},
       }) {
    SCOPED_TRACE(c.sets.empty() ? "" : c.sets.front());
    const Plan p = inputs_of("quickstart", c.sets).plan();
    EXPECT_EQ(p.survival.losses, c.losses);
    EXPECT_EQ(p.survival.says.size(), c.losses.size() + 1);
  }
  EXPECT_THAT(inputs_of("quickstart", {"checkpoint.every=0", "checkpoint.local=none"}).plan().survival.says,
              Contains("a lost node: starts again from step 0 (up to 300 steps): checkpoint.every is 0"));
}

TEST(Plan, CountsTheMemoryOfTheLocalLevel) {
  const auto local = [](const std::vector<std::string>& sets) {
    return inputs_of("quickstart", sets).plan();
  };
  const auto state = [](const Plan& p) { return p.memory.state.parameters + p.memory.state.optimizer; };
  auto p = local({});
  EXPECT_EQ(p.local, (LocalPlan{"/dev/shm", 1, 0, 3 * 2 * state(p)}))
      << "three snapshot buffers of two ranks";
  p = local({"shard.strategy=full_shard"});
  EXPECT_EQ(p.local.node_bytes, 5 * 2 * state(p)) << "and two of each copy";
  p = local({"shard.strategy=full_shard", "checkpoint.partner_every=2"});
  EXPECT_EQ(p.local.node_bytes, 6 * 2 * state(p)) << "and one that stays until its copy is whole";
  p = local({"checkpoint.local=/scratch"});
  EXPECT_EQ(p.local.folder, "/scratch");
  EXPECT_EQ(local({"checkpoint.local=none"}).local, LocalPlan{});
  auto in = inputs_of("quickstart");
  in.facts.gpu_memory_bytes = 30'000'000;
  EXPECT_THAT(refusal_of(in), HasSubstr("snapshots 14.45 MiB"));
  in.config.checkpoint.local = "/scratch";
  EXPECT_EQ(refusal_of(in), "") << "a disk";
}

TEST(Plan, TheBatchHostIsASpareAndLeadsFirst) {
  auto in = inputs_of("quickstart");
  EXPECT_EQ(leaders_of(in.plan()), (std::vector<std::string>{"dgx001", "dgx004", "dgx002", "dgx003"}));
  EXPECT_TRUE(in.plan().hypothetical);
  in.nodes = {"dgx004", "dgx007", "dgx005", "dgx003"};
  in.batch_host = "dgx003";
  auto p = in.plan();
  EXPECT_FALSE(p.hypothetical);
  EXPECT_EQ(leaders_of(p), (std::vector<std::string>{"dgx003", "dgx005", "dgx004", "dgx007"}))
      << "su2 has 003 and 004, su3 005, su4 007";
  EXPECT_TRUE(node_called(p, "dgx003").batch_host);
  EXPECT_EQ(node_called(p, "dgx003").slot, -1);
  in.config.cluster.spares = 0;
  p = in.plan();
  EXPECT_EQ(p.nodes.size(), 2u) << "further nodes stay out";
  EXPECT_EQ(leaders_of(p).front(), "dgx003");
  EXPECT_THAT(p.warnings, Contains("the batch host dgx003 is active since there are no spares: its loss "
                                   "takes the batch script along"));
}

TEST(Plan, Warnings) {
  auto in = inputs_of("quickstart");
  const auto warns = [&](const std::string& text) {
    EXPECT_THAT(in.plan().warnings, Contains(HasSubstr(text)));
  };
  in.nodes = {"dgx001", "dgx002", "dgx005"};
  in.batch_host = "dgx001";
  warns("1 of 2 spares: the allocation has 3 nodes");
  in.nodes = {"dgx001", "dgx002", "elsewhere", "dgx003"};
  warns("node elsewhere is in no scalable unit of cluster minipod");
  in = inputs_of("quickstart", {"cluster.nodes=3", "shard.group=3", "train.global_batch=24"});
  warns("shard groups of 3 ranks cross nodes of 2 ranks unevenly");
  in = inputs_of("quickstart");
  in.facts.scalable_units = {{"one", "a[1-2]"}, {"two", "b[1-3]"}};
  in.nodes = {"b1", "b2", "b3", "a1"}, in.batch_host = "a1", in.config.cluster.nodes = 3,
  in.config.cluster.spares = 1, in.config.train.lanes = 4;
  EXPECT_TRUE(in.plan().warnings.empty());
}

struct Refusal {
  const char* job;
  std::vector<std::string> sets;
  Exit exit;
  const char* says;
};

TEST(Plan, Refuses) {
  const std::string nabu = "llama2-7b-nabuchodonosor";
  const std::vector<Refusal> cases = {
      {"quickstart",
       {"cluster.nodes=120", "cluster.spares=10"},
       Exit::impossible,
       "nodes + spares = 130 but minipod has 127 nodes (120 active nodes and 10 spares). Use at most 7 "
       "spares?"},
      {"quickstart",
       {"cluster.spares=-1"},
       Exit::usage,
       "cluster.spares must be between 0 and 65536, not -1"},
      {"quickstart",
       {"shard.group=3"},
       Exit::usage,
       "shard.group does not divide the number of ranks (2 nodes x 2 ranks = 4 ranks, group 3)"},
      {"quickstart",
       {"cluster.ranks_per_node=9", "train.global_batch=36"},
       Exit::impossible,
       "9 ranks do not fit a node (a node of minipod has 8 places for ranks). Use ranks_per_node = 8?"},
      {nabu.c_str(),
       {"cluster.ranks_per_node=9", "train.global_batch=1116"},
       Exit::impossible,
       "9 ranks do not fit a node (a node of nabuchodonosor has 8 GPUs)"},
      {nabu.c_str(),
       {"model.file=llama2-70b"},
       Exit::impossible,
       " but a GPU has 74.51 GiB (sharded over 8: "},
      {nabu.c_str(),
       {"shard.strategy=no_shard", "train.lanes=992"},
       Exit::impossible,
       "(sharded over 1: optimizer state "},
      {nabu.c_str(),
       {"train.global_batch=100"},
       Exit::usage,
       "there are fewer micro-batches than ranks (100 micro-batches, 992 ranks; each rank computes at "
       "least one in a step). Use train.global_batch = 992, or fewer ranks?"},
      {nabu.c_str(),
       {"train.global_batch=1001"},
       Exit::usage,
       "the micro-batches of a step are not a multiple of the ranks of a shard group (1001 micro-batches, "
       "groups of 8 ranks"},
      {nabu.c_str(),
       {"precision.parameters=fp32"},
       Exit::usage,
       "attention on the GPU computes in bf16 only"},
      {"quickstart",
       {"train.device=cuda", "precision.parameters=fp32"},
       Exit::usage,
       "attention on the GPU computes in bf16 only"},
      {"quickstart",
       {"train.global_batch=16000", "train.micro_batch=2000"},
       Exit::impossible,
       "but its share of a node has 2.00 GiB (sharded over 2: activations "},
      {"quickstart",
       {"train.sequence=1024"},
       Exit::usage,
       "train.sequence is out of range (it is 1024; model tiny takes 1 to 512 tokens)"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.says);
    try {
      inputs_of(c.job, c.sets).plan();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(c.says));
      EXPECT_EQ(e.exit(), c.exit);
    }
  }
  auto in = inputs_of("quickstart");
  in.nodes = {"dgx001"};
  EXPECT_THROW(in.plan(), Error);
}

/// Each resource and each kind of change: what does not fit is refused, and what the error suggests is
/// planned.
TEST(Plan, SuggestsTheSmallestChangeThatFits) {
  const char *nabu = "llama2-7b-nabuchodonosor", *small = "quickstart";
  struct Case {
    const char* job;
    std::vector<std::string> sets;
    std::int64_t rank_bytes, node_bytes, shm_bytes;  ///< 0: as the cluster file has it
    std::string change, numbers;
  };
  const std::int64_t mb = 1'000'000, gb = 1000 * mb;
  for (const Case& c : {
           Case{nabu,
                {"train.sequence=4096", "train.micro_batch=4", "train.global_batch=3968"},
                0,
                0,
                0,
                "train.activation_checkpointing=selective",
                " GiB of 74.51 GiB a rank"},
           {nabu,
            {"train.micro_batch=8", "train.global_batch=7936"},
            0,
            0,
            0,
            "train.activation_checkpointing=full",
            " of 74.51 GiB a rank"},
           {nabu,
            {"train.activation_checkpointing=full", "train.micro_batch=32", "train.global_batch=31744"},
            0,
            0,
            0,
            "train.micro_batch=16",
            " of 74.51 GiB a rank"},
           {nabu, {"train.activation_checkpointing=full"}, 20 * gb, 0, 0, "shard.offload=moments", " a rank"},
           {nabu,
            {"train.activation_checkpointing=full", "shard.offload=moments"},
            14 * gb,
            0,
            0,
            "shard.strategy=hfsdp",
            "12.09 GiB of 13.04 GiB a rank"},
           {nabu,
            {"shard.strategy=hfsdp", "cluster.nodes=2", "cluster.spares=0", "train.global_batch=32"},
            30 * gb,
            0,
            0,
            "train.activation_checkpointing=attention",
            " of 27.94 GiB a rank"},
           {nabu, {}, 0, 0, 200 * gb, "shard.strategy=hfsdp", " of 186.3 GiB of /dev/shm a node"},
           {nabu,
            {"cluster.nodes=1", "train.global_batch=16"},
            0,
            200 * gb,
            0,
            "checkpoint.local=none",
            " of 186.3 GiB a node"},
           {small, {}, 43 * mb, 0, 0, "train.activation_checkpointing=selective", " of 41.01 MiB a rank"},
       }) {
    SCOPED_TRACE(c.change);
    auto in = inputs_of(c.job, c.sets);
    if (c.rank_bytes > 0) in.facts.gpu_memory_bytes = c.rank_bytes;
    if (c.node_bytes > 0) in.facts.node_memory_bytes = c.node_bytes;
    if (c.shm_bytes > 0) in.facts.node_shm_bytes = c.shm_bytes;
    const std::string says = refusal_of(in);
    EXPECT_THAT(
        says, testing::AllOf(HasSubstr("Set " + c.change + ", with which it fits: "), HasSubstr(c.numbers)));
    auto sets = c.sets;
    sets.push_back(c.change);
    auto changed = inputs_of(c.job, sets);
    changed.facts = in.facts;
    EXPECT_EQ(refusal_of(changed), "");
  }
}

TEST(Plan, SuggestsSeveralChangesOnlyWhereNoneSufficesAlone) {
  auto in = inputs_of("llama2-7b-nabuchodonosor", {"train.micro_batch=4", "train.global_batch=3968"});
  in.facts.gpu_memory_bytes = 25'000'000'000;
  EXPECT_THAT(refusal_of(in), HasSubstr("Set train.activation_checkpointing=full and train.micro_batch=2, "
                                        "with which it fits: "));
  in.facts.gpu_memory_bytes = 1'000'000'000;
  EXPECT_THAT(refusal_of(in), HasSubstr("No setting makes it fit: use a smaller model"));
}

/// The gradients of the scores of one key head and its query heads: sequence^2 elements of two bytes each.
TEST(Plan, CountsTheScoresThatDeterministicAttentionStoresOnGpus) {
  const std::vector<std::string> job = {"train.activation_checkpointing=full"};
  auto in = inputs_of("llama2-7b-nabuchodonosor", job);
  in.model.heads = 32;
  in.model.kv_heads = 8;
  in.model.max_sequence = 131072;
  const auto with = [&](int sequence) {
    in.config.train.sequence = sequence;
    in.facts.gpu_memory_bytes = 0;
    const auto scratch = in.plan().memory.attention;
    in.facts.gpu_memory_bytes = 80'000'000'000;
    return static_cast<double>(scratch) / (std::int64_t{1} << 30);
  };
  EXPECT_NEAR(with(4096), 0.25, 0.05);
  EXPECT_NEAR(with(32768), 8, 0.2);
  EXPECT_EQ(refusal_of(in), "");
  EXPECT_NEAR(with(65536), 32, 0.4);
  EXPECT_THAT(refusal_of(in), HasSubstr("scratch memory of attention 32."));
  in.config.train.deterministic = false;
  EXPECT_EQ(refusal_of(in), "") << "scores are not stored";
  auto cpu = inputs_of("quickstart");
  EXPECT_EQ(cpu.plan().memory.attention, 0);
}

TEST(Plan, TheJobsEnvironmentWins) {
  auto in = inputs_of("quickstart", {"rank.environment=[\"OMPI_MCA_btl=self,tcp\", \"X=a b\"]"});
  const auto p = in.plan();
  EXPECT_THAT(p.environment, Contains("OMPI_MCA_btl=self,tcp"));
  EXPECT_THAT(p.environment, Contains("X=a b"));
  EXPECT_THAT(p.environment, Contains("OMPI_MCA_btl_tcp_if_include=eth0")) << "a longer name is another name";
  EXPECT_EQ(p.environment.size(), 6u);
}

TEST(Plan, OfAnotherProgramSaysWhatIsKnownOfIt) {
  const auto text_of = [](const std::string& kind) {
    auto in = inputs_of("quickstart", {"rank.command=[\"python3\", \"train.py\"]", "rank.kind=" + kind});
    in.facts.node_shm_bytes = 64'000'000'000;
    const auto p = in.plan();
    return to_text(p);
  };
  for (const char* kind : {"auto", "plain", "sigterm", "client"}) {
    const std::string text = text_of(kind);
    EXPECT_THAT(text, HasSubstr("python3 train.py"));
    EXPECT_THAT(text, HasSubstr("since it saved last is done again"));
    for (const char* ours : {"parameters", "micro-batch", "snapshots", "the same bits", "local level"})
      EXPECT_THAT(text, testing::Not(HasSubstr(ours))) << kind;
  }
  for (const char* kind : {"auto", "client"})
    EXPECT_THAT(text_of(kind), HasSubstr("with snapshot buffers, in which each rank may keep "));
  for (const char* kind : {"plain", "sigterm"})
    EXPECT_THAT(text_of(kind), testing::Not(HasSubstr("snapshot buffers")));
  EXPECT_THAT(text_of("client"), HasSubstr("it follows all orders"));
  EXPECT_THAT(text_of("sigterm"), HasSubstr("save and pause are refused"));
  EXPECT_THAT(text_of("plain"), HasSubstr("save, pause and evict are refused"));
  EXPECT_THAT(text_of("auto"), HasSubstr("until it speaks to its agents"));
  auto ours = inputs_of("quickstart", {"rank.kind=client"});
  EXPECT_THROW(ours.plan(), Error) << "holdfast-train always speaks";
}

TEST(Plan, AsJson) {
  for (const char* job : {"quickstart", "llama2-7b-nabuchodonosor"}) {
    auto in = inputs_of(job, {"run.name=a \"b\" $(c) ü", "shard.strategy=hfsdp", "precision.parameters=bf16",
                              "precision.reduce=bf16"});
    const auto p = in.plan();
    const auto j = to_json(p);
    EXPECT_EQ(j.at("schema_version"), plan_schema_version);
    EXPECT_EQ(j.at("shard_groups").size(), as_size(p.replicas()));
    EXPECT_EQ(j.at("job"), p.job);
    EXPECT_EQ(j.at("ranks").size(), as_size(p.world()));
    EXPECT_EQ(j.at("precision").at("reduce"), "bf16");
    EXPECT_EQ(nlohmann::json::parse(j.dump()), j);
  }
}

/// Issue 39.
TEST(Plan, KeepsCopiesOfWeightsWhereMemorySuffices) {
  const auto job = [](std::vector<std::string> sets) {
    sets.insert(sets.begin(),
                {"model.file=llama-124m", "shard.strategy=no_shard", "precision.products=fp8",
                 "train.sequence=1024", "cluster.nodes=4", "cluster.spares=0", "train.global_batch=64"});
    return inputs_of("llama2-7b-nabuchodonosor", sets);
  };
  const auto settled = [](Inputs in) {
    in.config = with_copies_that_fit(config::resolve(in.config, in.facts), in.model, in.facts);
    return in;
  };
  const auto keeps = [&](const Inputs& in) { return config::keeps_copies(settled(in).config); };
  const auto needs = [](const Inputs& in) { return needed_of_rank(in.plan(), in.facts); };
  Inputs in = job({});
  ASSERT_TRUE(keeps(in));
  EXPECT_EQ(settled(settled(in)).config, settled(in).config);
  EXPECT_FALSE(keeps(job({"precision.products=bf16"})));
  EXPECT_FALSE(keeps(job({"shard.strategy=hybrid_shard"})));
  EXPECT_TRUE(keeps(job({"shard.strategy=hybrid_shard", "shard.group=1"})));

  const std::int64_t plain = needs(in), kept = needs(settled(in));
  EXPECT_GT(kept, plain);
  in.facts.gpu_memory_bytes = kept;
  EXPECT_TRUE(keeps(in));
  EXPECT_EQ(settled(in).plan().memory.activations - in.plan().memory.activations, kept - plain);
  in.facts.gpu_memory_bytes = kept - 1;
  EXPECT_FALSE(keeps(in));
  in.facts.gpu_memory_bytes = 0;  // not known
  EXPECT_FALSE(keeps(in));

  // On fewer nodes a rank has more micro-steps and sums: the run may shrink to them as before.
  in = job({"supervise.min_nodes=1"});
  EXPECT_TRUE(keeps(in));
  const std::int64_t least = needs(job({"cluster.nodes=1"}));
  EXPECT_GT(least, kept);
  in.facts.gpu_memory_bytes = least;
  EXPECT_FALSE(keeps(in));
  in.facts.gpu_memory_bytes = least - 1;  // it cannot shrink so far in any case
  EXPECT_EQ(keeps(in), needs(settled(job({"cluster.nodes=2"}))) < least);
}

TEST(Plan, NamesCopiesOfWeightsAsWhatMayBeLeftOut) {
  Inputs in =
      inputs_of("llama2-7b-nabuchodonosor",
                {"model.file=llama-124m", "train.sequence=1024", "shard.strategy=full_shard",
                 "precision.products=fp8", "train.activation_checkpointing=full", "train.micro_batch=1",
                 "cluster.spares=0", "shard.prefetch_forward=0", "shard.prefetch_backward=0",
                 "shard.offload=moments", "shard.keep_gathered=all", "shard.keep_across_micro_steps=true"});
  in.facts.gpu_memory_bytes = needed_of_rank(in.plan(), in.facts) - 1;
  EXPECT_THAT(refusal_of(in), HasSubstr("shard.keep_across_micro_steps=false"));
}

}  // namespace
}  // namespace holdfast::launcher

// How many copies of the state the settings of a job keep in the memory of its nodes, and whether they fit.
#include "launcher/plan/host_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/plan/plan.hpp"
#include "launcher/plan/topology.hpp"
#include "src/base/error.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t giga = 1'000'000'000;

struct Job {
  config::RunConfig config;
  config::ModelShape model;
  config::ClusterFacts facts;
  Job(const std::string& job, const std::vector<std::string>& sets)
      : config(config::load(job, sets).config),
        model(config::load_model(config.model.file)),
        facts(config::load_cluster(config.cluster.file)) {}
  HostMemory host() const {
    const auto nodes = hypothetical_nodes(facts, config.cluster.nodes, config.cluster.spares);
    return make_plan(config, model, facts, nodes, std::nullopt).host;
  }
};

/// Llama 2 7B on 8 H100s: one copy of parameters and fp32 moments is 80.9 GB.
Job seven_b(const std::vector<std::string>& sets = {}) { return {"llama2-7b-finetune", sets}; }

TEST(HostMemory, EachSettingCostsItsCopiesOfTheState) {
  const HostMemory usual = seven_b().host();
  EXPECT_NEAR(static_cast<double>(usual.state), 80.9e9, 0.1e9);
  EXPECT_EQ(usual.snapshots, 2 * usual.state);
  EXPECT_NEAR(static_cast<double>(usual.saves), 2.0 * static_cast<double>(usual.state), 1e6);
  EXPECT_EQ(usual.passing, 0) << "arenas are there, and a restore goes to a buffer";
  EXPECT_EQ(usual.total(), usual.snapshots + usual.saves + usual.tokens + usual.programs);
  EXPECT_LE(usual.tokens, 8 * (std::int64_t{64} << 20)) << "data.read_ahead_mb of eight ranks";
  EXPECT_GT(usual.tokens, 7 * (std::int64_t{64} << 20));
  EXPECT_EQ(usual.capacity, 2000 * giga);

  const HostMemory no_saves = seven_b({"checkpoint.every=0"}).host();
  EXPECT_EQ(no_saves.saves, 0);
  EXPECT_EQ(no_saves.passing, usual.saves / 2) << "the last one";
  const HostMemory no_snapshots = seven_b({"checkpoint.local=none"}).host();
  EXPECT_EQ(no_snapshots.snapshots, 0);
  EXPECT_EQ(no_snapshots.passing, usual.state) << "a restore";
  const HostMemory neither = seven_b({"checkpoint.local=none", "checkpoint.every=0"}).host();
  EXPECT_EQ(neither.total(), neither.passing + neither.tokens + neither.programs);
  EXPECT_LT(neither.total(), 100 * giga);
  EXPECT_EQ(seven_b({"shard.offload=moments"}).host().moments, 2 * usual.state / 3);

  const HostMemory two = seven_b({"cluster.nodes=2"}).host();
  EXPECT_EQ(two.state, usual.state / 2);
  EXPECT_EQ(two.snapshots, 2 * two.state);
  EXPECT_EQ(two.partners, 2 * two.state) << "nobody else holds the same";
  EXPECT_EQ(seven_b({"cluster.nodes=2", "checkpoint.partner=none"}).host().partners, 0);
  const HostMemory on_disk = seven_b({"cluster.nodes=2", "checkpoint.local=/scratch"}).host();
  EXPECT_EQ(on_disk.snapshots, two.snapshots) << "GPUs copy to pinned memory, wherever its file lies";
  EXPECT_EQ(on_disk.partners, 0);
}

TEST(HostMemory, WhatDoesNotFitIsRefusedAndNamesWhatToGiveUp) {
  Job job = seven_b();
  job.facts.node_memory_bytes = 300 * giga;
  try {
    job.host();
    FAIL() << "335 GB in 300";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::impossible);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("a node needs 312.9 GiB"), HasSubstr("one of jeroboam has 279.4 GiB"),
                      HasSubstr("snapshots 150.6"), HasSubstr("saves 150.6"),
                      HasSubstr("checkpoint.local = \"none\", checkpoint.every = 0")));
  }
  job.config.checkpoint.every = 0;
  EXPECT_NO_THROW(job.host());
  job.facts.node_memory_bytes = 0;
  job.config.checkpoint.every = 100;
  EXPECT_NO_THROW(job.host()) << "nobody knows";
}

/// 7B on a machine with one H200 and 128 GB.
TEST(HostMemory, OneGpuAndLittleHostMemorySufficeWithoutSnapshotsAndSaves) {
  const std::vector<std::string> one = {"cluster.ranks_per_node=1", "shard.strategy=no_shard",
                                        "train.global_batch=8", "train.lanes=1", "train.sequence=1024"};
  Job job = seven_b(one);
  job.facts.gpu_memory_bytes = 150'754'820'096;
  job.facts.node_memory_bytes = 128 * giga;
  EXPECT_THROW(job.host(), Error);
  job.config.checkpoint.every = 0;
  job.config.checkpoint.local = "none";
  EXPECT_LT(job.host().total(), 90 * giga);
}

TEST(HostMemory, ForPeople) {
  HostMemory memory = seven_b().host();
  EXPECT_THAT(
      host_memory_says(memory),
      ElementsAre(AllOf(HasSubstr("snapshots 150.6"), HasSubstr("(2 copies of its state), saves 150.6")),
                  AllOf(HasSubstr("together 312.9"), HasSubstr("GiB of 1.82 TiB, with about 11.18 GiB"))));
  memory.capacity = 0;
  EXPECT_THAT(host_memory_says(memory).back(), HasSubstr("not checked"));
}

TEST(HostMemory, OfAnotherProgramIsNotKnown) {
  Job job = seven_b({"rank.command=[\"python3\", \"train.py\"]"});
  job.facts.node_memory_bytes = giga;
  EXPECT_EQ(job.host(), HostMemory{});
  EXPECT_TRUE(host_memory_says({}).empty());
}

/// On the CPU the state lies in one of the buffers.
TEST(HostMemory, RanksOnTheCpu) {
  const Job job("quickstart", {});
  const HostMemory local = job.host(), none = Job("quickstart", {"checkpoint.local=none"}).host();
  EXPECT_GT(local.snapshots, 0);
  EXPECT_EQ(none.ranks, local.ranks + local.state);
  EXPECT_EQ(local.programs, 0);
  EXPECT_GT(local.saves, 0);
}

}  // namespace
}  // namespace holdfast::launcher

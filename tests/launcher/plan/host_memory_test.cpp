// What the settings of a job keep in the memory of its nodes, and whether it fits. That ranks take just that
// is the subject of measured_memory_test.cpp.
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
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_EQ(usual.bytes_of("snapshot buffers"), 3 * usual.state) << "of which one is for saves";
  EXPECT_EQ(usual.bytes_of("window to the GPU"), 8 * (std::int64_t{16} << 20));
  EXPECT_EQ(usual.bytes_of("activations"), 0) << "of the GPU";
  EXPECT_LE(usual.bytes_of("tokens read ahead"), 8 * (std::int64_t{64} << 20)) << "data.read_ahead_mb";
  EXPECT_GT(usual.bytes_of("tokens read ahead"), 7 * (std::int64_t{64} << 20));
  EXPECT_EQ(usual.capacity, 2000 * giga);
  EXPECT_EQ(usual.shm_capacity, 1000 * giga);

  const HostMemory none = seven_b({"checkpoint.local=none"}).host();
  EXPECT_EQ(none.bytes_of("snapshot buffers"), none.state) << "for saves and restores";
  EXPECT_LT(none.total(), 100 * giga);
  EXPECT_EQ(seven_b({"checkpoint.local=none", "checkpoint.every=0"}).host(), none)
      << "the last save needs one";
  EXPECT_EQ(seven_b({"shard.offload=moments"}).host().bytes_of("moments"), 2 * usual.state / 3);
  EXPECT_EQ(seven_b({"checkpoint.read_back=full"}).host().bytes_of("staging of saves") -
                usual.bytes_of("staging of saves"),
            8 * (std::int64_t{8} << 20));

  const HostMemory two = seven_b({"cluster.nodes=2"}).host();
  EXPECT_EQ(two.state, usual.state / 2);
  EXPECT_EQ(two.bytes_of("snapshot buffers"), 3 * two.state);
  EXPECT_EQ(two.bytes_of("partner copies"), 2 * two.state) << "nobody else holds the same";
  EXPECT_EQ(seven_b({"cluster.nodes=2", "checkpoint.partner_every=2"}).host().bytes_of("snapshot buffers"),
            4 * two.state)
      << "one stays until its copy is whole";
  EXPECT_EQ(seven_b({"cluster.nodes=2", "checkpoint.partner=none"}).host().bytes_of("partner copies"), 0);
}

TEST(HostMemory, FilesInShmCountThereAndInTheNodeAndThoseOnADiskInTheNodeAlone) {
  const HostMemory two = seven_b({"cluster.nodes=2"}).host();
  EXPECT_EQ(two.total_in_shm(), two.bytes_of("snapshot buffers") + two.bytes_of("partner copies") +
                                    two.bytes_of("logs that wait") + two.bytes_of("copies of programs"));
  EXPECT_LT(two.total_in_shm(), two.total());
  const HostMemory disk = seven_b({"cluster.nodes=2", "checkpoint.local=/scratch"}).host();
  EXPECT_EQ(disk.bytes_of("snapshot buffers"), two.bytes_of("snapshot buffers"))
      << "they are mapped and pinned, wherever the file lies";
  EXPECT_EQ(disk.bytes_of("partner copies"), 0) << "the page cache gives them up";
  EXPECT_LT(disk.total_in_shm(), 2 * giga);
}

TEST(HostMemory, WhatDoesNotFitIsRefusedAndNamesWhatToGiveUp) {
  Job job = seven_b();
  job.facts.node_memory_bytes = 200 * giga;
  const auto refused = [&](const std::vector<std::string>& words) {
    try {
      job.host();
      ADD_FAILURE() << "it does not fit";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::impossible);
      for (const auto& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
  };
  refused({"a node needs 240.", "of host memory but one of jeroboam has 186.3 GiB", "(snapshot buffers 225.9",
           "Set checkpoint.local=none, with which it fits: "});
  job.config.checkpoint.local = "none";
  EXPECT_NO_THROW(job.host());
  job.config.checkpoint.local = "auto";
  job.facts.node_memory_bytes = 0;
  EXPECT_NO_THROW(job.host()) << "nobody knows";

  job.facts.node_shm_bytes = 100 * giga;
  refused({"of /dev/shm but one of jeroboam has 93.13 GiB", "(snapshot buffers 225.9",
           "Set checkpoint.local=none, with which it fits: "});
  job.config.checkpoint.local = "/scratch";
  EXPECT_NO_THROW(job.host());
}

TEST(HostMemory, OfAnotherProgramItsSnapshotBuffersMustHaveRoom) {
  Job job = seven_b({"rank.command=[\"python3\", \"train.py\"]", "cluster.nodes=2"});
  job.facts.node_shm_bytes = 1024 * giga;
  constexpr double gib = std::int64_t{1} << 30;
  const auto says = [&](double bytes) -> std::string {
    job.config.rank.buffers_gib = bytes / gib;
    try {
      job.host();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::impossible);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(says(0), "");
  EXPECT_EQ(says(27.9 * giga), "");
  EXPECT_THAT(
      says(28.1 * giga),
      AllOf(StartsWith("a rank keeps 26.17 GiB in snapshot buffers but one of jeroboam may have 26.08 GiB "
                       "(seven eighths of 953.7 GiB of /dev/shm are for two generations and as many "
                       "copies of 8 ranks)"),
            HasSubstr("checkpoint.partner = \"none\"?")));
  job.config.checkpoint.partner = config::Partner::none;
  EXPECT_EQ(says(55.9 * giga), "");
  EXPECT_THAT(says(56.1 * giga), HasSubstr("for two generations of 8 ranks)"));
  job.config.checkpoint.local = "/scratch";
  EXPECT_EQ(says(100.0 * giga), "") << "nobody knows how large it is";
  job.config.checkpoint.local = "none";
  EXPECT_THAT(says(1), HasSubstr("have no place (checkpoint.local is \"none\")"));
}

/// 7B on a machine with one H200 and 128 GB.
TEST(HostMemory, OneGpuAndLittleHostMemorySufficeWithoutALocalLevel) {
  const std::vector<std::string> one = {"cluster.ranks_per_node=1", "shard.strategy=no_shard",
                                        "train.global_batch=8", "train.lanes=1", "train.sequence=1024"};
  Job job = seven_b(one);
  job.facts.gpu_memory_bytes = 150'754'820'096;
  job.facts.node_memory_bytes = 128 * giga;
  EXPECT_THROW(job.host(), Error);
  job.config.checkpoint.local = "none";
  EXPECT_LT(job.host().total(), 90 * giga);
}

TEST(HostMemory, ForPeople) {
  HostMemory memory = seven_b().host();
  const auto lines = host_memory_says(memory);
  EXPECT_EQ(lines.size(), memory.parts.size() + 2) << "a line for each part, and two sums";
  EXPECT_THAT(lines,
              Contains(StartsWith("snapshot buffers                  225.9 GiB  3 copies of the state, "
                                  "in /dev/shm")));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("together"), HasSubstr("GiB  of 1.82 TiB"))));
  EXPECT_THAT(lines.back(), AllOf(StartsWith("of it in /dev/shm"), HasSubstr("GiB  of 931.3 GiB")));
  memory.capacity = memory.shm_capacity = 0;
  EXPECT_THAT(host_memory_says(memory),
              Contains(HasSubstr("not checked: the cluster file has no node_memory_bytes")));
  EXPECT_THAT(host_memory_says(memory).back(), HasSubstr("the cluster file has no node_shm_bytes"));
}

TEST(HostMemory, OfAnotherProgramIsNotKnown) {
  Job job = seven_b({"rank.command=[\"python3\", \"train.py\"]"});
  job.facts.node_memory_bytes = job.facts.node_shm_bytes = giga;
  EXPECT_EQ(job.host(), HostMemory{});
  EXPECT_TRUE(host_memory_says({}).empty());
}

/// On the CPU the state lies in one of the buffers.
TEST(HostMemory, RanksOnTheCpu) {
  const Job job("quickstart", {});
  const HostMemory local = job.host(), none = Job("quickstart", {"checkpoint.local=none"}).host();
  EXPECT_EQ(local.bytes_of("snapshot buffers"), 3 * local.state);
  EXPECT_GE(none.bytes_of("snapshot buffers"), 2 * none.state);
  EXPECT_LE(none.bytes_of("snapshot buffers") - 2 * none.state, 2 * 2 * (2 << 20)) << "ends of huge pages";
  EXPECT_GT(local.bytes_of("activations"), 0);
  EXPECT_GT(local.bytes_of("pieces from other nodes"), 0) << "replicas exchange partial sums";
  EXPECT_EQ(local.bytes_of("CUDA and its libraries") + local.bytes_of("window to the GPU"), 0);
}

}  // namespace
}  // namespace holdfast::launcher

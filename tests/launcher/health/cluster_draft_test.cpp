#include "launcher/health/cluster_draft.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "src/config/load.hpp"
#include "tests/launcher/health/fake_node.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

slurm::NodeShape dgx_node(const std::string& name) {
  return {name, 2, 56, 1, std::int64_t{2} << 40, "gpu:h100:8(S:0-1)", "h100", 8};
}

slurm::SiteFacts super_pod() {
  slurm::SiteFacts site;
  site.version = "24.05.1";
  site.partitions = {{"debug", false, true, "1:00:00", {"login1"}},
                     {"batch", true, true, "2-00:00:00", {"dgx001", "dgx002", "dgx003", "dgx004", "cpu1"}}};
  for (const char* name : {"dgx001", "dgx002", "dgx003", "dgx004"}) site.nodes.push_back(dgx_node(name));
  site.nodes.push_back({"cpu1", 2, 32, 2, std::int64_t{1} << 38, "", "", 0});
  site.nodes.push_back({"login1", 1, 8, 2, std::int64_t{1} << 36, "", "", 0});
  site.scalable_units = {{"su1", {"dgx001", "dgx002"}}, {"su2", {"dgx003"}}};
  site.settings = {{"ClusterName", "Pod \"7\""}, {"SlurmdTimeout", "300 sec"}};
  return site;
}

/// The file, read in the same way as by the other verbs.
config::ClusterFacts read_back(const Draft& draft) {
  test::FakeNode folder;
  const auto file = folder.folder() / (draft.name + ".toml");
  files::replace_atomically(file, draft.text);
  return config::load_cluster(file.string());
}

TEST(Draft, of_a_login_node_is_read_back_and_says_what_is_guessed) {
  const auto draft = draft_cluster(super_pod(), {}, "");
  EXPECT_EQ(draft.name, "pod7") << "fit for a file name";
  const auto facts = read_back(draft);
  EXPECT_EQ(facts.gpu, "h100");
  EXPECT_EQ(facts.gpus_per_node, 8);
  EXPECT_EQ(facts.gpu_memory_bytes, 80000000000);
  EXPECT_EQ(facts.cpus_per_node, 112);
  EXPECT_EQ(facts.node_memory_bytes, std::int64_t{2} << 40);
  EXPECT_EQ(facts.node_shm_bytes, std::int64_t{1} << 40) << "as Linux mounts it by default";
  EXPECT_THAT(draft.to_check, Contains(HasSubstr("node_shm_bytes is a guess")));
  EXPECT_THAT(facts.scalable_units,
              ElementsAre(config::ScalableUnit{"su1", "dgx[001-002]"}, config::ScalableUnit{"su2", "dgx003"},
                          config::ScalableUnit{"rest", "dgx004"}));
  EXPECT_EQ(facts.gpus.size(), 8u);
  EXPECT_EQ(facts.gpus[3].rail, 3);
  EXPECT_THAT(draft.text, HasSubstr("# nic_bytes_s = "));
  EXPECT_THAT(draft.text, HasSubstr("left out, of another shape: cpu1"));
  EXPECT_THAT(draft.to_check, Contains(HasSubstr("NICs are unknown")));
  EXPECT_THAT(draft.to_check, Contains(HasSubstr("control_interface is a guess")));
}

TEST(Draft, of_a_compute_node_knows_nics_and_interface) {
  LocalSite local;
  local.node = "dgx001";
  local.interface = "bond0";
  local.gpus = 8;
  local.shm_bytes = 700'000'000'000;
  local.gpu_memory_bytes = 85899345920;
  for (int i = 0; i < 8; ++i)
    local.gpu_facts.push_back({i, "mlx5_" + std::to_string(i), "ib" + std::to_string(i), i / 4, i});
  const auto draft = draft_cluster(super_pod(), local, "batch");
  const auto facts = read_back(draft);
  EXPECT_EQ(facts.control_interface, "bond0");
  EXPECT_EQ(facts.gpu_memory_bytes, 85899345920);
  EXPECT_EQ(facts.node_shm_bytes, 700'000'000'000);
  EXPECT_EQ(facts.gpus[5], (config::GpuFacts{5, "mlx5_5", "ib5", 1, 5}));
  EXPECT_THAT(draft.to_check, ElementsAre(HasSubstr("Rails are numbered like GPUs")));
}

TEST(Draft, does_not_believe_in_gpus_that_no_driver_sees) {
  LocalSite local;
  local.node = "dgx001";
  local.interface = "eth0";
  const auto draft = draft_cluster(super_pod(), local, "");
  const auto facts = read_back(draft);
  EXPECT_EQ(facts.gpu, "none");
  EXPECT_EQ(facts.gpus_per_node, 8);
  EXPECT_THAT(draft.to_check, Contains(HasSubstr("no NVIDIA driver answers")));
}

TEST(Draft, without_gpus_or_topology_is_one_unit_of_cpu_ranks) {
  auto site = super_pod();
  site.scalable_units.clear();
  site.unknown = {"topology: it said\nnothing"};
  const auto draft = draft_cluster(site, {}, "debug");
  const auto facts = read_back(draft);
  EXPECT_EQ(facts.gpu, "none");
  EXPECT_EQ(facts.scalable_units, (std::vector<config::ScalableUnit>{{"su1", "login1"}}));
  EXPECT_THAT(draft.to_check, Contains(HasSubstr("SLURM knows no topology")));
  EXPECT_THAT(draft.text, HasSubstr("# SLURM did not report topology: it said nothing"))
      << "still one line of comment";
}

TEST(Draft, takes_the_memory_of_the_node_that_has_least) {
  auto site = super_pod();
  site.nodes[2].memory_bytes = std::int64_t{1} << 40;
  EXPECT_EQ(read_back(draft_cluster(site, {}, "")).node_memory_bytes, std::int64_t{1} << 40);
}

TEST(Draft, refuses_what_is_not_there) {
  EXPECT_THROW(draft_cluster(super_pod(), {}, "bacth"), Error);
  try {
    draft_cluster(super_pod(), {}, "bacth");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_EQ(error.hint(), "Did you mean batch?");
  }
  EXPECT_THROW(draft_cluster({}, {}, ""), Error);
  auto site = super_pod();
  site.nodes.clear();
  EXPECT_THROW(draft_cluster(site, {}, ""), Error);
}

}  // namespace
}  // namespace holdfast::launcher

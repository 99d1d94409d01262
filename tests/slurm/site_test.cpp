#include "slurm/site.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Site, partitions_and_their_nodes) {
  const auto partitions = read_partitions(test::FakeTools::captured("site_partitions.txt"));
  ASSERT_THAT(partitions, SizeIs(1));
  EXPECT_EQ(partitions[0].name, "pod");
  EXPECT_TRUE(partitions[0].is_default && partitions[0].up);
  EXPECT_EQ(partitions[0].time_limit, "infinite");
  EXPECT_THAT(partitions[0].nodes, ElementsAre("dgx001", "dgx002", "dgx003", "dgx004"));
  // One line for each state of a partition's nodes.
  const auto many = read_partitions(
      "batch*|up|2-00:00:00|2|n[8,10]\nbatch*|up|2-00:00:00|1|n9\ndebug|down|30:00|0|\nnonsense\n");
  ASSERT_THAT(many, SizeIs(2));
  EXPECT_THAT(many[0].nodes, ElementsAre("n8", "n9", "n10"));
  EXPECT_FALSE(many[1].up);
  EXPECT_THAT(many[1].nodes, IsEmpty());
}

TEST(Site, a_partition_may_have_too_few_nodes_for_a_job) {
  const auto all = read_partitions(test::FakeTools::captured("site_partitions.txt") +
                                   "small|up|infinite|2|n[1-2]\nlarge|up|infinite|9|m[1-9]\n");
  EXPECT_EQ(lack_of_nodes(all, "", 5), "it asks for 5 nodes, and partition pod has 4") << "the default one";
  EXPECT_EQ(lack_of_nodes(all, "", 4), "");
  EXPECT_EQ(lack_of_nodes(all, "small,pod", 5),
            "it asks for 5 nodes, and partition small has 2, partition pod has 4");
  EXPECT_EQ(lack_of_nodes(all, "small,large", 5), "") << "one is enough";
  EXPECT_EQ(lack_of_nodes(all, "hidden", 5), "") << "nothing is known of it";
  EXPECT_EQ(lack_of_nodes({}, "", 5), "");
  EXPECT_EQ(asked_partitions({"--parsable", "--exclude=n1"}), "");
  EXPECT_EQ(asked_partitions({"--partition=small", "-plarge"}), "large") << "as sbatch has it";
  EXPECT_EQ(asked_partitions({"-plarge", "--part=small,pod"}), "small,pod");
}

TEST(Site, shapes_of_nodes) {
  const auto nodes = read_shapes(test::FakeTools::captured("site_nodes.txt"));
  ASSERT_THAT(nodes, SizeIs(4));
  EXPECT_EQ(nodes[0].name, "dgx001");
  EXPECT_EQ(nodes[0].cores(), 16);
  EXPECT_EQ(nodes[0].memory_bytes, std::int64_t{65536} << 20);
  EXPECT_EQ(nodes[0].gpus, 8);
  EXPECT_EQ(nodes[0].gpu_model, "h100");
  EXPECT_TRUE(nodes[0].same_shape(nodes[3]));
  const auto odd = read_shapes(
      "n1|a|2|56|2|2051000+|gpu:a100:4(S:0,1),nic:2|idle\nn1|b|2|56|2|2051000+|gpu:a100:4|idle\nn2|a|x|||("
      "null)|(null)|down*\n");
  ASSERT_THAT(odd, SizeIs(2)) << "once, though in two partitions";
  EXPECT_EQ(odd[0].gpu_model, "a100");
  EXPECT_EQ(odd[1].cores(), 0);
}

TEST(Site, leaves_and_blocks_are_units) {
  const auto tree = read_topology(test::FakeTools::captured("site_topology.txt"));
  ASSERT_THAT(tree, SizeIs(2)) << "the switch above the leaves is no unit";
  EXPECT_EQ(tree[1].name, "su2");
  EXPECT_THAT(tree[1].nodes, ElementsAre("dgx003", "dgx004"));
  const auto blocks = read_topology(
      "BlockName=b1 BlockIndex=0 Nodes=dgx[01-02] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=dgx03 "
      "BlockSize=2\n");
  ASSERT_THAT(blocks, SizeIs(2));
  EXPECT_THAT(blocks[0].nodes, ElementsAre("dgx01", "dgx02"));
  EXPECT_THAT(read_topology("No topology information available\n"), IsEmpty());
}

TEST(Site, settings_and_mpi_plugins) {
  const auto settings = read_settings(test::FakeTools::captured("site_config.txt"));
  EXPECT_EQ(settings.at("ClusterName"), "minipod");
  EXPECT_EQ(settings.at("SlurmdTimeout"), "300 sec");
  EXPECT_EQ(settings.at("Prolog"), "") << "(null)";
  EXPECT_THAT(read_mpi_plugins(test::FakeTools::captured("site_mpi.txt")),
              ElementsAre("pmix", "cray_shasta", "pmi2", "pmix_v4"));
  EXPECT_THAT(read_mpi_plugins("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix_v3\n"),
              ElementsAre("pmi2", "pmix_v3"));
  EXPECT_EQ(gpu_model_in("gpu:8"), "");
  EXPECT_EQ(gpu_model_in("nic:1,gpu:h200:8(S:0,2)"), "h200");
}

TEST(Site, is_probed_and_says_what_it_was_not_told) {
  test::FakeTools tools;
  tools.answer("sinfo", "slurm 24.05.1\n");
  tools.answer("scontrol", "", "slurm_load_topo error: Unable to contact slurm controller\n", 1);
  tools.answer("srun", "", "MPI plugin types are...\n\tpmix\n");
  const auto site = probe_site(std::chrono::seconds(20));
  EXPECT_EQ(site.version, "24.05.1");
  EXPECT_THAT(site.mpi, ElementsAre("pmix"));
  EXPECT_THAT(site.unknown, SizeIs(2)) << "settings and topology";
  tools.answer("sinfo", "", "sinfo: fatal: Could not establish a configuration source\n", 1);
  EXPECT_THROW(probe_site(std::chrono::seconds(20)), Error);
}

}  // namespace
}  // namespace holdfast::slurm

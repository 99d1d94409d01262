#include "launcher/job/local_run.hpp"

#include <gmock/gmock.h>

#include "tests/config/scratch.hpp"

namespace holdfast::launcher {
namespace {

using test::refusal_of;

config::Loaded loaded_with(const std::vector<std::string>& sets) { return config::load_defaults(sets); }

TEST(LocalRun, HasOneNodeWhateverTheJobFileSays) {
  auto loaded = loaded_with({});
  loaded.config.cluster.nodes = 4;  // as a job file has it: the origin is no flag
  loaded.config.cluster.spares = 2;
  loaded.config.slurm.partition = "gpu";
  const auto config = on_one_node(loaded, false);
  EXPECT_EQ(config.cluster.nodes, 1);
  EXPECT_EQ(config.cluster.spares, 0);
  EXPECT_EQ(config.cluster.ranks_per_node, 1);
  EXPECT_EQ(config.slurm.partition, "");
  EXPECT_EQ(config.slurm.comment_s, 0) << "there is nobody who shows comments";
}

TEST(LocalRun, HasARankForEachGpu) {
  EXPECT_EQ(on_one_node(loaded_with({}), true).cluster.ranks_per_node, 0)
      << "resolved by the machine's facts";
  EXPECT_EQ(on_one_node(loaded_with({"cluster.ranks_per_node=2"}), true).cluster.ranks_per_node, 2);
}

TEST(LocalRun, RefusesWhatAnOptionAsksForAndThisMachineIsNot) {
  const auto nodes = refusal_of([] { (void)on_one_node(loaded_with({"cluster.nodes=2"}), false); });
  EXPECT_EQ(nodes.exit, Exit::usage);
  EXPECT_THAT(nodes.text, testing::HasSubstr("cluster.nodes cannot be 2 in a local run"));
  EXPECT_EQ(on_one_node(loaded_with({"cluster.nodes=1"}), false).cluster.nodes, 1);
  EXPECT_THAT(refusal_of([] { (void)on_one_node(loaded_with({"container.image=x.sif"}), false); }).text,
              testing::HasSubstr("container.image"));
}

}  // namespace
}  // namespace holdfast::launcher

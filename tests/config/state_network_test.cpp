#include "src/config/state_network.hpp"

#include <gtest/gtest.h>

namespace holdfast::config {
namespace {

TEST(StateNetwork, TheSettingThenTheNicOfTheRankThenTheControlInterface) {
  RunConfig config;
  ClusterFacts facts;
  EXPECT_EQ(state_network(config, facts, 0), "");
  facts.control_interface = "bond0";
  facts.gpus = {{0, "mlx5_0", "", 0, 0}, {1, "mlx5_3", "", 0, 1}, {2, "", "", 0, 2}};
  EXPECT_EQ(state_network(config, facts, 0), "mlx5_0:1");
  EXPECT_EQ(state_network(config, facts, 1), "mlx5_3:1");
  EXPECT_EQ(state_network(config, facts, 2), "bond0");
  EXPECT_EQ(state_network(config, facts, 3), "bond0");
  config.checkpoint.network = "ib7";
  EXPECT_EQ(state_network(config, facts, 0), "ib7");
}

}  // namespace
}  // namespace holdfast::config

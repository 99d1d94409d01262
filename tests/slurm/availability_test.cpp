#include "slurm/availability.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Availability, states_of_nodes) {
  const std::map<std::string, NodeUse> known = {{"idle", NodeUse::idle},
                                                {"idle~", NodeUse::powered_down},
                                                {"idle-", NodeUse::busy},
                                                {"idle*", NodeUse::away},
                                                {"reserved", NodeUse::reserved},
                                                {"idle$", NodeUse::reserved},
                                                {"mixed", NodeUse::busy},
                                                {"mixed-", NodeUse::busy},
                                                {"allocated#", NodeUse::busy},
                                                {"completing", NodeUse::busy},
                                                {"planned", NodeUse::busy},
                                                {"down*", NodeUse::away},
                                                {"drained", NodeUse::away},
                                                {"draining", NodeUse::away},
                                                {"maint", NodeUse::away},
                                                {"powered_down~", NodeUse::powered_down},
                                                {"", NodeUse::away},
                                                {"a new word", NodeUse::away}};
  for (const auto& [state, use] : known) EXPECT_EQ(node_use(state), use) << state;
}

TEST(Availability, of_the_same_pod_in_each_release) {
  for (const char* release : {"22.05", "24.11", "26.05"}) {
    const auto nodes = read_present_nodes(test::FakeTools::captured("present_nodes.txt", release));
    ASSERT_THAT(nodes, SizeIs(4)) << release;
    EXPECT_EQ(nodes[0].name, "dgx001");
    EXPECT_EQ(nodes[0].partition, "pod");
    EXPECT_TRUE(nodes[0].is_default && nodes[0].partition_up);
    EXPECT_EQ(nodes[0].time_limit, "infinite");
    EXPECT_EQ(nodes[0].gpus, 8);
    EXPECT_EQ(nodes[0].gpu_model, "h100");
    const std::vector<NodeUse> uses = {nodes[0].use, nodes[1].use, nodes[2].use, nodes[3].use};
    EXPECT_THAT(uses, ElementsAre(NodeUse::busy, NodeUse::idle, NodeUse::away, NodeUse::reserved)) << release;
    const auto reservations = read_reservations(test::FakeTools::captured("reservations.txt", release));
    ASSERT_THAT(reservations, SizeIs(1)) << release;
    EXPECT_EQ(reservations[0].name, "course");
    EXPECT_TRUE(reservations[0].active);
    EXPECT_THAT(reservations[0].nodes, ElementsAre("dgx004"));
    EXPECT_EQ(reservations[0].users, "holdfast");
    EXPECT_EQ(reservations[0].accounts, "");
    ASSERT_TRUE(reservations[0].start && reservations[0].end);
    EXPECT_EQ(*reservations[0].end - *reservations[0].start, 7200);
  }
}

TEST(Availability, what_fails_alone_is_said) {
  test::FakeTools tools;
  tools.answer("sinfo", "n1|a|up|1:00:00|idle|(null)\n");
  tools.answer("scontrol", "", "slurm_load_reservations error: Zero Bytes were transmitted or received", 1);
  const auto now = availability("me", std::chrono::seconds(20));
  EXPECT_THAT(now.nodes, SizeIs(1));
  ASSERT_THAT(now.unknown, SizeIs(3));
  EXPECT_THAT(now.unknown[0], HasSubstr("topology: "));
  EXPECT_THAT(now.unknown[2], HasSubstr("accounts and limits: "));
  EXPECT_THAT(tools.calls(), Not(HasSubstr("--all\n"))) << "it lists partitions that are closed to the user";
  tools.answer("sinfo", "", "sinfo: error: Unable to contact slurm controller", 1);
  EXPECT_THROW(availability("me", std::chrono::seconds(20)), Error);
}

}  // namespace
}  // namespace holdfast::slurm

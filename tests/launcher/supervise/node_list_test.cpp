#include "launcher/supervise/node_list.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

TEST(NodeList, TellsTheRoleOfEveryNode) {
  const Roster roster = test::roster_of({.slots = 2, .spares = 4});
  RunState state;
  state.lost = {"n1", "n3"};
  state.evicted = {"n3"};
  state.suspects = {"n4"};
  state.failures["n0"] = 2;
  state.pasts["n3"].add({NodeMark::What::evicted, 1, 1, 1});
  std::vector<ListedNode> nodes(6);
  nodes[0].heard_s = 0.1234;
  nodes[5] = {{control::NodeHealth::Fitness::warning, false, true}, std::string(300, 'w'), std::nullopt};
  nodes[1].ranks = SlotProgress{6, {{"forward", 1}}};  // the last that was heard of it
  nodes[0].ranks = SlotProgress{7, {{"forward", 2}}};
  const json list = json::parse(node_list(roster, state, {0, 1}, nodes));
  const char* roles[] = {"active", "lost", "spare", "evicted", "suspect", "spare"};
  for (int n = 0; n < 6; ++n) EXPECT_EQ(list[n]["role"], roles[n]) << n;
  EXPECT_EQ(list[0]["slot"], 0);
  EXPECT_EQ(list[1]["slot"], -1) << "it has lost it";
  EXPECT_EQ(list[2]["batch_host"], true);
  EXPECT_EQ(list[0]["failures"], 2);
  EXPECT_EQ(list[0]["heard_s"], 0.1);
  EXPECT_EQ(list[0]["step"], 7);
  EXPECT_EQ(list[0]["phases"], (json{{"forward", 2}}));
  EXPECT_FALSE(list[1].contains("phases"));
  EXPECT_EQ(list[0]["record"], "");
  EXPECT_EQ(list[3]["record"], "evicted");
  EXPECT_EQ(list[5]["heard_s"], nullptr);
  EXPECT_EQ(list[5]["fitness"], "warning");
  EXPECT_EQ(list[5]["numerics_agree"], false);
  EXPECT_EQ(std::string(list[5]["why"]).size(), 200u);
}

}  // namespace
}  // namespace holdfast::launcher

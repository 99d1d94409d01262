#include "launcher/plan/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/plan/spares.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

TEST(Topology, NamesAreOrderedAsPeopleCount) {
  std::vector<std::string> names = {"n10", "n2", "n1", "n01", "a", "n2x", "", "n2x3", "n", "m99"};
  std::sort(names.begin(), names.end(), name_before);
  EXPECT_EQ(names, (std::vector<std::string>{"", "a", "m99", "n", "n01", "n1", "n2", "n2x", "n2x3", "n10"}));
  for (const auto& a : names) {
    EXPECT_FALSE(name_before(a, a));
    for (const auto& b : names) EXPECT_FALSE(name_before(a, b) && name_before(b, a)) << a << " " << b;
  }
}

config::ClusterFacts two_units() {
  config::ClusterFacts facts;
  facts.name = "c";
  facts.scalable_units = {{"east", "n[1-4]"}, {"west", "n[5-6]"}};
  return facts;
}

TEST(Topology, NodesByUnit) {
  const auto units = by_scalable_unit(two_units(), {"n6", "x1", "n3", "n1"});
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].scalable_unit, "east");
  EXPECT_EQ(units[0].nodes, (std::vector<std::string>{"n1", "n3"}));
  EXPECT_EQ(units[2].scalable_unit, "");
  EXPECT_THROW(by_scalable_unit(two_units(), {"n1", "n1"}), Error);
  auto twice = two_units();
  twice.scalable_units[1].nodes = "n[4-6]";
  EXPECT_THROW(by_scalable_unit(twice, {"n1"}), Error);
}

TEST(Topology, HypotheticalNodesAreTheFirst) {
  EXPECT_EQ(hypothetical_nodes(two_units(), 3, 2), (std::vector<std::string>{"n1", "n2", "n3", "n4", "n5"}));
  EXPECT_EQ(hypothetical_nodes(two_units(), 2, 1, {"n2", "n9"}),
            (std::vector<std::string>{"n1", "n3", "n4"}));
  struct Case {
    int active, spares;
    const char* says;
  };
  for (const Case& c :
       {Case{5, 2,
             "nodes + spares = 7 but c has 6 nodes (5 active nodes and 2 spares). Use at most 1 spares?"},
        Case{7, 0,
             "nodes + spares = 7 but c has 6 nodes (7 active nodes and 0 spares). Use at most 6 nodes?"}}) {
    try {
      hypothetical_nodes(two_units(), c.active, c.spares);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::impossible);
      EXPECT_STREQ(e.what(), c.says);
    }
  }
}

std::string spares_of(const std::vector<ScalableUnitNodes>& units, int count, const std::string& host) {
  auto spares = spread_spares(units, count, host);
  std::sort(spares.begin(), spares.end(), name_before);
  return slurm::compress(spares);
}

TEST(Spares, AreSpreadOverTheUnits) {
  const auto facts = config::load_cluster("nabuchodonosor");
  const auto all = by_scalable_unit(facts, hypothetical_nodes(facts, 127, 0));
  EXPECT_EQ(spares_of(all, 3, "dgx001"), "dgx[001,064,096]");
  EXPECT_EQ(spares_of(all, 3, ""), "dgx[032,064,096]");
  EXPECT_EQ(spares_of(all, 3, "dgx100"), "dgx[032,064,100]");
  EXPECT_EQ(spares_of(all, 7, "dgx001"), "dgx[001,032,063-064,095-096,127]");
  EXPECT_EQ(spares_of(all, 0, "dgx001"), "");
  for (const int count : {7, 15, 31}) {  // 120+7, 112+15, 96+31: equally many stay in each unit
    const auto spares = spread_spares(all, count, "dgx001");
    for (const auto& unit : all) {
      const auto given = std::count_if(spares.begin(), spares.end(), [&](const auto& s) {
        return std::count(unit.nodes.begin(), unit.nodes.end(), s) > 0;
      });
      EXPECT_EQ(static_cast<int>(unit.nodes.size()) - given, (127 - count) / 4)
          << count << " " << unit.scalable_unit;
    }
  }
}

TEST(Spares, SmallCases) {
  const std::vector<ScalableUnitNodes> units = {{"a", {"n1", "n2"}}, {"b", {"n3", "n4"}}};
  EXPECT_EQ(spares_of(units, 2, "n1"), "n[1,4]");
  EXPECT_EQ(spares_of(units, 1, "n3"), "n3");
  EXPECT_EQ(spares_of(units, 4, "n1"), "n[1-4]");
  EXPECT_EQ(spares_of(units, 9, "n1"), "n[1-4]");
  EXPECT_EQ(spares_of({}, 1, "n1"), "");
  EXPECT_EQ(spares_of({{"a", {"n1", "n2", "n3"}}, {"b", {"n9"}}}, 2, "elsewhere"), "n[3,9]");
}

}  // namespace
}  // namespace holdfast::launcher

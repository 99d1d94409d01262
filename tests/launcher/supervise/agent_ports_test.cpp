// Which ports agents try: outside of the ranges that a machine uses otherwise.
#include "launcher/supervise/agent_ports.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(AgentPorts, WhatTheKernelSays) {
  const auto usual = taken_ports("32768\t60999\n", "\n");
  EXPECT_THAT(usual.ephemeral, ElementsAre(Pair(32768, 60999)));
  EXPECT_TRUE(usual.reserved.empty());
  const auto reserved = taken_ports("32768\t60999\n", "8080,20000-20100,22222\n").reserved;
  EXPECT_THAT(reserved, ElementsAre(Pair(8080, 8080), Pair(20000, 20100), Pair(22222, 22222)));
  EXPECT_TRUE(taken_ports("", "").ephemeral.empty());
  EXPECT_FALSE(taken_ports("", "").contain(40000));
}

/// The first ports of ten thousand jobs.
std::set<int> firsts(const TakenPorts& taken) {
  std::set<int> out;
  for (int job = 1; job <= 10000; ++job) out.insert(first_port(job, taken));
  return out;
}

TEST(AgentPorts, AreOutsideOfWhatTheMachineUses) {
  for (const auto& [ephemeral, reserved] : {std::pair{"32768\t60999", ""},
                                            {"32768\t60999", "20000-25000,26001"},
                                            {"15000\t65000", ""},
                                            {"1024\t29000", ""},
                                            {"20000\t65535", "15000"}}) {
    const auto taken = taken_ports(ephemeral, reserved);
    for (const int first : firsts(taken))
      for (int port = first; port < first + ports_per_agent; ++port) {
        EXPECT_FALSE(taken.contain(port)) << port << " of " << ephemeral << " " << reserved;
        EXPECT_TRUE(port >= 10000 && port <= highest_port) << port;
        EXPECT_FALSE(port >= 29500 && port < 30500) << "programs of torch meet at " << port;
      }
  }
  EXPECT_EQ(*firsts(taken_ports("1024\t65535", "")).begin(), 20000) << "there is no other";
}

TEST(AgentPorts, TwoJobsHaveNoneInCommon) {
  const auto taken = taken_ports("32768\t60999", "");
  EXPECT_GT(firsts(taken).size(), 1000u);
  for (int job = 1; job < 1000; ++job)
    EXPECT_GE(std::abs(first_port(job, taken) - first_port(job + 1, taken)), ports_per_agent);
  EXPECT_EQ(first_port(17, taken), first_port(17, taken));
}

TEST(AgentPorts, OfThisNodeTheFreeOnesAreTriedFirst) {
  EXPECT_THAT(ports_to_try(20000, 4, taken_ports("20001\t20002", "")),
              ElementsAre(20000, 20003, 20001, 20002));
  EXPECT_THAT(ports_to_try(20000, 3, taken_ports("32768\t60999", "20000")), ElementsAre(20001, 20002, 20000));
  EXPECT_THAT(ports_to_try(65534, 8, {}), ElementsAre(65534, 65535));
  EXPECT_THAT(mover_ports_to_try(20000, 4, taken_ports("20001\t20002", "")),
              ElementsAre(20003, 20000, 20002, 20001));
}

}  // namespace
}  // namespace holdfast::launcher

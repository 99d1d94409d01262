#include "launcher/supervise/succession.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using nlohmann::json;

json line(int epoch, int seq) { return {{"epoch", epoch}, {"seq", seq}}; }
json elected(int epoch, int after_epoch, int after_seq) {
  json e = line(epoch, 1);
  e["after"] = {{"epoch", after_epoch}, {"seq", after_seq}};
  return e;
}
std::string kept(std::vector<std::vector<json>> files) {
  std::string text;
  for (const auto& e : that_count(std::move(files)))
    text += std::to_string(e["epoch"].get<int>()) + "." + std::to_string(e["seq"].get<int>()) + " ";
  return text;
}

TEST(Succession, WhatWasWrittenTooLateIsVoid) {
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2), line(1, 3)}, {elected(2, 1, 2), line(2, 2)}}),
            "1.1 1.2 2.1 2.2 ");
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2)}, {elected(2, 1, 2)}}), "1.1 1.2 2.1 ")
      << "all of it was read";
}

TEST(Succession, ALeaderThatWasPassedOverNeverLed) {
  // 3 had folded before 2 wrote its first line.
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2)}, {elected(2, 1, 2), line(2, 2)}, {elected(3, 1, 2)}}),
            "1.1 1.2 3.1 ");
  EXPECT_EQ(kept({{elected(1, 0, 0)}, {elected(2, 0, 0)}}), "2.1 ");
  EXPECT_EQ(kept({{elected(1, 0, 0)}, {}}), "1.1 ") << "2 has taken the epoch and written nothing";
}

TEST(Succession, TheChainGoesOn) {
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2), line(1, 3)},
                  {elected(2, 1, 1), line(2, 2), line(2, 3)},
                  {elected(4, 2, 2), line(4, 2)}}),
            "1.1 2.1 2.2 4.1 4.2 ");
}

TEST(Succession, LinesOfBeforeTheRuleCount) {
  EXPECT_EQ(kept({{line(1, 1), line(1, 2)}, {line(2, 1)}}), "1.1 1.2 2.1 ");
  EXPECT_EQ(kept({{line(1, 1), line(1, 2)}, {line(2, 1), line(2, 2)}, {elected(3, 2, 1)}}),
            "1.1 1.2 2.1 3.1 ");
}

TEST(Succession, ReadSoFar) {
  EXPECT_EQ(read_so_far({}), json({{"epoch", 0}, {"seq", 0}}));
  EXPECT_EQ(read_so_far({line(1, 1), line(3, 7)}), json({{"epoch", 3}, {"seq", 7}}));
}

}  // namespace
}  // namespace holdfast::launcher

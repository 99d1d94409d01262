#include "launcher/supervise/valid_events.hpp"

#include <gtest/gtest.h>

#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher {
namespace {

LogEntry line(int term, int seq) {
  return test::entry({{"event", "first_step"}, {"term", term}, {"seq", seq}});
}
LogEntry elected(int term, int after_term, int after_seq) {
  return test::entry({{"event", "leader_elected"},
                      {"term", term},
                      {"seq", 1},
                      {"after", {{"term", after_term}, {"seq", after_seq}}}});
}
std::string kept(std::vector<std::vector<LogEntry>> files) {
  std::string text;
  for (const auto& e : valid_events(std::move(files)))
    text += std::to_string(e.envelope.term) + "." + std::to_string(e.envelope.seq) + " ";
  return text;
}

TEST(Succession, WhatWasWrittenTooLateIsVoid) {
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2), line(1, 3)}, {elected(2, 1, 2), line(2, 2)}}),
            "1.1 1.2 2.1 2.2 ");
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2)}, {elected(2, 1, 2)}}), "1.1 1.2 2.1 ")
      << "all of it was read";
}

TEST(Succession, ALeaderThatWasPassedOverNeverLed) {
  // 3 had replayed the log before 2 wrote its first line.
  EXPECT_EQ(kept({{elected(1, 0, 0), line(1, 2)}, {elected(2, 1, 2), line(2, 2)}, {elected(3, 1, 2)}}),
            "1.1 1.2 3.1 ");
  EXPECT_EQ(kept({{elected(1, 0, 0)}, {elected(2, 0, 0)}}), "2.1 ");
  EXPECT_EQ(kept({{elected(1, 0, 0)}, {}}), "1.1 ") << "2 has taken the term and written nothing";
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
  EXPECT_EQ(last_read({}), (events::LastRead{0, 0}));
  EXPECT_EQ(last_read({line(1, 1), line(3, 7)}), (events::LastRead{3, 7}));
}

}  // namespace
}  // namespace holdfast::launcher

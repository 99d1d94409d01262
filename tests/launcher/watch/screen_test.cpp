// The screen of `holdfast watch`, as text: two sizes, and what must never reach a terminal.
#include "launcher/watch/screen.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "tests/launcher/golden.hpp"

namespace holdfast::launcher::watch {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

/// Lost dgx005 at step 41 of attempt 1; attempt 2 has come to step 80 of 100.
View a_view(const std::string& evidence = "no heartbeat for 2.0 s") {
  View view;
  view.status.name = "quickstart";
  view.status.steps = 100;
  view.status.roster = Roster{"7.0",
                              {{"dgx001", "dgx001", 1, ""},
                               {"dgx002", "dgx002", 1, ""},
                               {"dgx003", "dgx003", 1, ""},
                               {"dgx005", "dgx005", 1, ""}},
                              {0, 3},
                              {0, 1, 2, 3}};
  const auto at = [&](double second, Event event) {
    view.events.push_back({{}, std::move(event)});
    view.events.back().envelope.unix = 1.7e9 + second;
  };
  const auto begins = [&](double second, int attempt, std::int64_t step, std::vector<std::string> placement) {
    at(second, events::AttemptPlanned{attempt, std::move(placement), "", "", 0});
    at(second + 2, events::PlacementVerified{attempt, 2});
    at(second + 3, events::Restored{attempt, step, step > 0 ? "local" : "fresh", "ab", ""});
    at(second + 4, events::FirstStep{attempt, step + 1});
  };
  at(0, events::LeaderElected{"dgx001", "7.0", 1, {}, 4});
  begins(1, 1, 0, {"dgx001", "dgx005"});
  at(40, events::CheckpointDurable{1, 40, ""});
  at(43, events::NodeLost{"dgx005", 1, 2.0, evidence});
  at(43, events::AttemptEnded{.attempt = 1,
                              .step = 41,
                              .cause = "node lost",
                              .node = "dgx005",
                              .kind = "node",
                              .detected_s = 2,
                              .evidence = {evidence}});
  at(44, events::SparePromoted{1, "dgx005", "dgx002", ""});
  begins(44, 2, 41, {"dgx001", "dgx002"});
  for (const auto& entry : view.events) apply(view.status.state, entry);
  for (int step = 1; step <= 80; ++step) {
    const nlohmann::json line = {{"step", step},
                                 {"loss", 2.0 + 40.0 / (step + 9)},
                                 {"tokens_per_s", 1000.0 + step},
                                 {"step_s", 0.5},
                                 {"time", "2023-11-14T22:14:48.250000Z"}};
    report::take(view.metrics, line);
    view.status.last_step = line;
  }
  view.now = 1.7e9 + 90;
  view.footer = "s save  q quit";
  return view;
}

void end(View& view, int exit_code) {
  view.events.push_back(
      {{}, events::RunFinished{exit_code, exit_code == 0 ? "done" : "out_of_spares", "", {}}});
  view.events.back().envelope.unix = 1.7e9 + 100;
  apply(view.status.state, view.events.back());
}

/// What metrics, the leader and the file system may tell beside the record.
void tell_more(View& view) {
  view.status.last_step->update({{"mfu", 0.412}, {"device_peak_bytes", 61.5e9}, {"data_wait_s", 0.012}});
  view.status.state.pace = {{"forward", {0.15, 0.2}}, {"backward", {0.3, 0.4}}, {"step", {0.5, 0.9}}};
  view.live = {{"dgx001", 81, {{"forward", 7}, {"data", 1}}}, {"dgx002", 80, {{"backward", 8}}}};
  view.disk = {.free_bytes = 40e9, .checkpoint_bytes = 1.5e9, .kept = 1, .keep = 3, .archive_h = 24};
}

std::string as_text(const std::vector<Line>& lines) {
  std::string out;
  for (const auto& line : lines) out += line.text + "\n";
  return out;
}

TEST(WatchGolden, Screens) {
  View view = a_view();
  std::string text = as_text(screen(view, 80, 24, Charset::ascii));
  text += as_text(screen(view, 80, 24, Charset::utf8));
  text += as_text(screen(view, 200, 60, Charset::utf8));
  tell_more(view);
  text += as_text(screen(view, 80, 24, Charset::ascii));
  text += as_text(screen(view, 200, 60, Charset::utf8));
  end(view, 0);
  text += as_text(screen(view, 80, 24, Charset::ascii));
  test::expect_golden(text, "watch.txt");
}

TEST(Watch, TheHeldOutLossIsThatOfTheFirstFileAndTheOthersAreBesideIt) {
  View view = a_view();
  nlohmann::json line = *view.status.last_step;
  line["held_out_loss"] = 1.5;
  report::take(view.metrics, line);
  EXPECT_THAT(as_text(screen(view, 200, 60, Charset::ascii)),
              testing::HasSubstr("held-out 1.5000 (step 80)"));
  line["held_out_by_file"] = {{"chat", 1.5}, {"code", 0.5}};
  report::take(view.metrics, line);
  EXPECT_THAT(as_text(screen(view, 200, 60, Charset::ascii)),
              testing::HasSubstr("held-out 1.5000 (chat 1.5000, code 0.5000) (step 80)"));
}

TEST(Watch, EverySizeIsKept) {
  View view = a_view();
  for (int i = 0; i < 30; ++i) view.status.state.slow["dgx" + std::to_string(i)] = "slow for some reason";
  for (const int width : {1, 39, 40, 41, 80, 119, 120, 121, 200, 400})
    for (const int height : {1, 2, 15, 16, 17, 24, 60, 200}) {
      const auto lines = screen(view, width, height, Charset::utf8);
      EXPECT_EQ(lines.size(), as_size(height));
      for (const auto& line : lines) EXPECT_LE(columns(line.text), width) << width << " x " << height;
      EXPECT_TRUE(height == 1 || width == 1 || lines.back().text.starts_with("s"));
    }
}

TEST(Watch, OfARunThatHasNotStarted) {
  View view;
  view.status.name = "new";
  const std::string text = as_text(screen(view, 80, 24, Charset::ascii));
  EXPECT_THAT(text, HasSubstr("new: waiting for nodes"));
  EXPECT_THAT(text, HasSubstr("step        none yet"));
  EXPECT_THAT(text, HasSubstr("no steps to draw yet"));
}

TEST(Watch, TheEndIsShown) {
  View view = a_view();
  end(view, 5);
  const auto lines = screen(view, 80, 24, Charset::ascii);
  EXPECT_THAT(lines[0].text, HasSubstr("out_of_spares (exit 5)"));
  EXPECT_EQ(lines[0].style, Style::bad);
  EXPECT_THAT(lines[1].text, HasSubstr("ended 2023-11-14 22:15:00"));
  EXPECT_THAT(lines[1].text, Not(HasSubstr("left")));
}

TEST(Watch, NothingThatATerminalObeysIsShown) {
  View view = a_view(
      "\x1b]0;title\x07\x1b[2J \xC2\x9B"
      "31m \xE2\x80\xAE \xE6\xBC\xA2 \xFF caf\xC3\xA9\nx");
  view.status.name = "\x1b[31mrun\x1b[0m";
  view.gap = "\x1b[1m";
  for (const auto charset : {Charset::ascii, Charset::utf8}) {
    const auto lines = screen(view, 200, 60, charset);
    for (const auto& line : lines)
      for (const unsigned char byte : line.text) EXPECT_TRUE(byte >= 0x20 && byte != 0x7F);
    const std::string text = as_text(lines);
    for (const char* hostile : {"\xC2\x9B", "\xE2\x80\xAE", "\xE6\xBC\xA2", "\xFF"})
      EXPECT_THAT(text, Not(HasSubstr(hostile)));
    EXPECT_THAT(text, HasSubstr(charset == Charset::utf8 ? "caf\xC3\xA9" : "caf?"));
  }
}

TEST(Watch, WithoutUtf8EverythingIsAscii) {
  for (const auto& line : screen(a_view(), 200, 60, Charset::ascii))
    for (const char byte : line.text) EXPECT_LT(static_cast<unsigned char>(byte), 0x7F);
}

TEST(Watch, AThousandNodesAreAFewLines) {
  View view = a_view();
  auto& placed = view.status.state.attempts.back().placement;
  placed.clear();
  for (int i = 1000; i < 2000; ++i) placed.push_back("gpu" + std::to_string(i));
  EXPECT_THAT(screen(view, 80, 24, Charset::ascii),
              Contains(Field(&Line::text, "trains      gpu[1000-1999] (1000)")));
}

TEST(Watch, ALostNodeIsShownHoweverManyAreSlow) {
  View view = a_view();
  for (int i = 0; i < 9; ++i) view.status.state.slow["n" + std::to_string(i)] = "why";
  EXPECT_THAT(as_text(screen(view, 80, 24, Charset::ascii)), HasSubstr("dgx005: no heartbeat"));
}

TEST(Watch, ADiskThatFillsIsBad) {
  Disk disk{.free_bytes = 3.5e9, .checkpoint_bytes = 1e9, .kept = 1, .keep = 3, .between_s = 600};
  EXPECT_EQ(disk_line(disk).style, Style::plain);
  EXPECT_THAT(disk_line(disk).text, HasSubstr("free: room for 3 checkpoints of 953.7 MiB"));
  disk.keep = 5;
  EXPECT_EQ(disk_line(disk).style, Style::bad);
  EXPECT_THAT(disk_line(disk).text, HasSubstr("full in 30.0 min"));
  disk.between_s = 0;
  EXPECT_THAT(disk_line(disk).text, HasSubstr("5 are needed"));
  disk.checkpoint_bytes = 0;
  EXPECT_EQ(disk_line(disk).text, "disk        3.26 GiB free");
}

TEST(Watch, GroupsOfNodesAreCountedWhereTheyDoNotFit) {
  View view = a_view();
  for (int i = 0; i < 9; ++i) view.live.push_back({"n" + std::to_string(i), i, {{"forward", 8}}});
  EXPECT_THAT(as_text(screen(view, 80, 24, Charset::ascii)),
              HasSubstr("ranks       n0: step 0, 8 forward   and 8 other groups of nodes"));
}

TEST(Watch, ALostNodeHasNoRanks) {
  View view = a_view();
  view.live = {{"gone", 80, {{"forward", 8}}}, {"n1", 81, {{"forward", 8}}}};
  view.status.state.lost.insert("gone");
  EXPECT_THAT(as_text(screen(view, 80, 24, Charset::ascii)),
              HasSubstr("ranks       n1: step 81, 8 forward\n"));
}

TEST(Watch, WhatDoesNotFitIsCounted) {
  View view = a_view();
  for (int i = 0; i < 9; ++i) view.status.state.slow["n" + std::to_string(i)] = "why";
  EXPECT_THAT(as_text(screen(view, 80, 24, Charset::ascii)), HasSubstr("more lines"));
}

}  // namespace
}  // namespace holdfast::launcher::watch

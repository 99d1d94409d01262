// A made-up run directory: what its report says, and what it says when files are missing, damaged or hostile.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/report/page.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/files.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::launcher::report {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Two attempts: the first loses a node at step 60 of 100.
class ReportTest : public testing::Test {
 protected:
  ReportTest() { scratch.write("config.toml", "[run]\nname = \"made up\"\n[train]\nsteps = 100\n"); }

  void write_events(const std::string& evidence = "no heartbeat for 5.0 s") {
    files::fs::create_directories(run.events());
    std::vector<LogEntry> entries;
    const auto at = [&](double second, Event event) {
      entries.push_back({{}, std::move(event)});
      entries.back().envelope.unix = 1.7e9 + second;
    };
    at(0, events::LeaderElected{"n0", "7.0", 1, {}, 3});
    begins(at, 5, 1, 0, {"n0", "n1"});
    at(60, events::CheckpointDurable{1, 50, ""});
    at(80, events::AttemptEnded{.attempt = 1,
                                .step = 60,
                                .cause = "node lost",
                                .node = "n1",
                                .kind = "node",
                                .detected_s = 5.25,
                                .decided_s = 0.25,
                                .evidence = {evidence}});
    at(81, events::SparePromoted{1, "n1", "n2", ""});
    begins(at, 82, 2, 50, {"n0", "n2"});
    at(150, events::AttemptEnded{.attempt = 2, .step = 100, .cause = "finished"});
    at(151, events::FinalState{100, 6400, 1.25, "00112233445566ff"});
    at(152, events::RunFinished{0, "done", "", {}});
    Journal(run, 1).write_all(entries);
  }
  template <class At>
  static void begins(const At& at, double second, int attempt, std::int64_t step,
                     const std::vector<std::string>& placement) {
    at(second, events::AttemptPlanned{attempt, placement, "", "", 0});
    at(second + 1, events::AttemptStarted{attempt});
    at(second + 2, events::PlacementVerified{attempt, 2});
    at(second + 3, events::Restored{attempt, step, step > 0 ? "local" : "fresh", "ab", ""});
    at(second + 4, events::FirstStep{attempt, step + 1});
  }
  void write_metrics() {
    std::string lines;
    for (int step = 1; step <= 100; ++step)
      lines +=
          nlohmann::json{{"step", step}, {"loss", 5.0 - step * 0.01}, {"tokens_per_s", 64.0}, {"step_s", 1.0}}
              .dump() +
          "\n";
    scratch.write("metrics.jsonl", lines);
  }
  Facts facts() const { return read_facts(run); }

  test::Scratch scratch;
  RunDir run{scratch.path()};
};

TEST_F(ReportTest, ItsNumbersAreThoseOfResultJson) {
  write_events();
  write_metrics();
  const auto result = result_of(replay(run));
  EXPECT_EQ(facts().result, result);
  for (const std::string& text : {html(page_of(facts())), markdown(page_of(facts()))}) {
    for (const auto& [name, spent] : result.at("time_s").items())
      if (spent.get<double>() > 0) {
        EXPECT_THAT(text, HasSubstr(name));
        EXPECT_THAT(text, HasSubstr(fmt::format("{:.2f}", spent.get<double>()))) << name;
      }
    EXPECT_THAT(text, HasSubstr(fmt::format("{:.2f} %", result.at("goodput").get<double>() * 100)));
    EXPECT_THAT(text, HasSubstr("00112233445566ff"));
    EXPECT_THAT(text, HasSubstr("no heartbeat for 5.0 s"));
    EXPECT_THAT(text, HasSubstr("5.25"));
    EXPECT_THAT(text, HasSubstr("slot 1: n2 takes the place of n1"));
  }
}

TEST_F(ReportTest, MarksAttemptsAndFaultsInThePlots) {
  write_events();
  write_metrics();
  const auto page = page_of(facts());
  ASSERT_EQ(page.sections.at(1).plots.size(), 2u);
  const auto& marks = page.sections.at(1).plots.front().marks;
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_TRUE(marks[0].fault);
  EXPECT_EQ(marks[0].step, 60);
  EXPECT_FALSE(marks[1].fault);
  EXPECT_EQ(marks[1].step, 50);
}

TEST_F(ReportTest, SaysWhatTheDevicesDidAndWhatEachSourceWasLike) {
  write_events();
  std::string lines;
  for (int step = 1; step <= 10; ++step)
    lines += nlohmann::json{{"step", step},
                            {"loss", 2.0},
                            {"step_s", 1.0},
                            {"data_wait_s", 0.25},
                            {"mfu", 0.5},
                            {"mfu_causal", 0.375},
                            {"host_peak_bytes", 1 << 30},
                            {"device_peak_bytes", std::int64_t{3} << 30},
                            {"loss_by_source", {{"web", 2.0 + step}, {"<code>", 1.0}}}}
                 .dump() +
             "\n";
  scratch.write("metrics.jsonl", lines);
  const auto page = page_of(facts());
  EXPECT_EQ(page.sections.at(1).plots.size(), 4u) << "loss, both sources, MFU";
  const std::string text = html(page);
  EXPECT_THAT(text, HasSubstr("50.00 % by PaLM&#39;s formula, 37.50 % with causal attention"));
  EXPECT_THAT(text, HasSubstr("2.50 s, 25.00 % of the time in steps (rank 0)"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB of the host, 3.00 GiB of the device (rank 0)"));
  EXPECT_THAT(text, HasSubstr("Loss of the source web: last 12.0000"));
  EXPECT_THAT(text, HasSubstr("Loss of the source &lt;code&gt;"));
}

TEST_F(ReportTest, ShowsTheLossOfEachHeldOutFile) {
  write_events();
  const auto text_of_line = [](const nlohmann::json& more) {
    nlohmann::json line = {{"step", 1}, {"loss", 2.0}, {"held_out_loss", 3.0}};
    line.update(more);
    return line.dump() + "\n";
  };
  scratch.write("metrics.jsonl", text_of_line(nlohmann::json::object()));
  EXPECT_THAT(html(page_of(facts())), HasSubstr("Held-out loss: last 3.0000"));
  scratch.write("metrics.jsonl", text_of_line({{"held_out_by_file", {{"chat", 3.0}, {"code", 1.0}}}}));
  const std::string several = html(page_of(facts()));
  EXPECT_THAT(several, HasSubstr("Held-out loss of chat: last 3.0000"));
  EXPECT_THAT(several, HasSubstr("Held-out loss of code: last 1.0000"));
  EXPECT_THAT(several, Not(HasSubstr("Held-out loss: last")));
}

TEST_F(ReportTest, EnergyIsToldByJobAndForEachToken) {
  write_events();
  auto known = facts();
  EXPECT_THAT(html(page_of(known)), Not(HasSubstr("Energy"))) << "nobody has asked SLURM";
  EXPECT_EQ(jobs_of(known.events), std::vector<slurm::JobId>{7});
  known.energy =
      slurm::Energy{{{7, 1.7e9, 1.7e9 + 50, 6.4e6}, {7, 1.7e9 + 60, 1.7e9 + 152, 12.8e6}}, "ipmi", ""};
  for (const std::string& text : {html(page_of(known)), markdown(page_of(known))}) {
    EXPECT_THAT(text, HasSubstr("1.7778"));
    EXPECT_THAT(text, HasSubstr("5.3333")) << "of all";
    EXPECT_THAT(text, HasSubstr("19200000"));
    EXPECT_THAT(text, HasSubstr("3000 J per token")) << "6400 tokens";
    EXPECT_THAT(text, HasSubstr("measured by ipmi"));
  }
}

TEST_F(ReportTest, EnergyThatWasNotMeasuredIsNeverZero) {
  write_events();
  auto known = facts();
  known.energy = slurm::Energy{{{7, 1.7e9, 1.7e9 + 50, std::nullopt}}, "", ""};
  std::string text = markdown(page_of(known));
  EXPECT_THAT(text, HasSubstr("|  | not measured |"));
  EXPECT_THAT(text, HasSubstr("no plug-in that measures energy"));
  EXPECT_THAT(text, Not(HasSubstr("J per token")));
  known.energy->jobs = {{7, 1.7e9, 1.7e9 + 50, 5.0}, {7, 1.7e9 + 60, std::nullopt, std::nullopt}};
  known.energy->unknown = "it did not say";
  text = markdown(page_of(known));
  EXPECT_THAT(text, HasSubstr("told when the job has ended"));
  EXPECT_THAT(text, HasSubstr("Who measures it is not known: it did not say"));
  EXPECT_THAT(text, Not(HasSubstr("| all |  |"))) << "a part is no sum";
  EXPECT_THAT(text, Not(HasSubstr("J per token")));
  known.energy->jobs = {{9, 1.7e9, 1.7e9 + 50, 5.0}};
  EXPECT_THAT(markdown(page_of(known)), HasSubstr("| 7 |  |  |  | SLURM's accounts do not have it |"));
}

TEST_F(ReportTest, TheFileOfThisEndIsTaken) {
  write_events();
  auto result = result_of(replay(run));
  result["why"] = "as the file says";
  scratch.write("result.json", result.dump());
  EXPECT_EQ(facts().result.at("why"), "as the file says");
  result["term"] = 99;
  scratch.write("result.json", result.dump());
  EXPECT_EQ(facts().result.at("why"), "") << "of another end of the run";
}

TEST_F(ReportTest, TextOfTheRunIsNeverMarkup) {
  const std::string attack = "</td><script>alert('x')</script> & \"q\" | `b` \x01\xff";
  scratch.write("config.toml", "[run]\nname = \"<img src=x onerror=alert(1)>\"\n");
  write_events(attack);
  write_metrics();
  const std::string page = html(page_of(facts())), text = markdown(page_of(facts()));
  for (const auto& out : {page, text}) {
    EXPECT_THAT(out, Not(HasSubstr("<script")));
    EXPECT_THAT(out, HasSubstr("&lt;script&gt;alert("));
    EXPECT_THAT(out, Not(HasSubstr("\x01")));
  }
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("alert(&#39;x&#39;)"));
  EXPECT_THAT(text, HasSubstr("alert('x')")) << "quotes mean nothing in Markdown";
  EXPECT_THAT(text, HasSubstr("\\| \\`b\\`"));
}

TEST_F(ReportTest, WhatMayBeSecretIsNotHandedOnByTheOwner) {
  scratch.write("config.toml",
                "[run]\nname = \"made up\"\n[rank]\ncommand = [\"python3\", \"--token=hunter2\"]\n"
                "environment = [\"WANDB_API_KEY=hunter2\"]\n[slurm]\nextra = [\"--comment=hunter2\"]\n"
                "[container]\nextra = [\"--container-env=hunter2\"]\n");
  for (const std::string& text : {html(page_of(facts())), markdown(page_of(facts()))}) {
    EXPECT_THAT(text, Not(HasSubstr("hunter2")));
    EXPECT_THAT(text, HasSubstr("WANDB_API_KEY=(not shown)"));
    EXPECT_THAT(text, HasSubstr("python3")) << "the program stays";
  }
}

TEST_F(ReportTest, NeedsNothingFromElsewhere) {
  write_events();
  write_metrics();
  const std::string page = html(page_of(facts()));
  for (const char* outside : {"<script", "<link", "<img", "src=", "href=", "url(", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST_F(ReportTest, OfAnotherProgramItHasWhatThatReports) {
  scratch.write("config.toml", "[run]\nname = \"made up\"\n[rank]\ncommand = [\"python3\", \"train.py\"]\n");
  std::string lines;
  for (int step : {1, 2, 3, 2, 3, 4})  // two of them are done again
    lines += nlohmann::json{{"step", step}, {"loss", 5.0 - step}, {"tokens_per_s", 64.0}}.dump() + "\n";
  scratch.write("logs/metrics.jsonl", lines);
  scratch.write("plan.json",
                R"({"world":2,"active":2,"spares":1,"cluster":"dgx","model":{"name":"tiny","parameters":5},)"
                R"("shard":{"strategy":"hybrid_shard","group":2}})");
  const auto read = facts();
  EXPECT_THAT(markdown(page_of(read)),
              HasSubstr("Planned: 2 ranks on 2 active nodes and 1 spare of the cluster dgx.\n"))
      << "it has no model of ours";
  EXPECT_EQ(read.metrics.lines, 6);
  EXPECT_EQ(page_of(read).sections.at(1).plots.size(), 2u) << "loss and throughput";
  EXPECT_THAT(markdown(page_of(read)), HasSubstr("| steps done | 4 |")) << "train.steps is not the program's";
}

TEST_F(ReportTest, OfARunThatHasNotStarted) {
  const std::string page = html(page_of(facts()));
  EXPECT_THAT(page, HasSubstr("There are no metrics"));
  EXPECT_THAT(page, HasSubstr("No attempt has failed."));
}

TEST_F(ReportTest, DamagedFilesAreGaps) {
  write_events();
  scratch.write("result.json", "{\"status\":");
  scratch.write("plan.json", "[1]");
  scratch.write("metrics.jsonl",
                "{\"step\":1,\"loss\":2.0}\nrubbish\n{\"step\":\"x\"}\n{\"step\":2,\"loss\":null}\n"
                "{\"step\":3,\"lost\":true}\n{\"step\":4,\"loss\":1");
  const auto read = facts();
  EXPECT_EQ(read.metrics.lines, 3);
  EXPECT_EQ(read.metrics.damaged, 2);
  EXPECT_EQ(read.metrics.without_loss, 1);
  EXPECT_EQ(read.metrics.lost, 1);
  const std::string page = html(page_of(read));
  EXPECT_THAT(page, HasSubstr("result.json is damaged"));
  EXPECT_THAT(page, HasSubstr("plan.json is damaged"));
  EXPECT_THAT(page, HasSubstr("2 lines of metrics.jsonl cannot be read"));
  EXPECT_THAT(page, HasSubstr("00112233445566ff")) << "the event log has it";
}

TEST_F(ReportTest, OfAnEventLogThatCannotBeReadTheResultStays) {
  scratch.write("events/0001.jsonl", "{\"event\":\"attempt_ended\"}\n");
  scratch.write("result.json",
                R"({"status":"done","state_digest":"feed","attempts":7,"time_s":[],"wall_s":"x"})");
  const std::string page = html(page_of(facts()));
  EXPECT_THAT(page, HasSubstr("The event log cannot be read"));
  EXPECT_THAT(page, HasSubstr("feed"));
}

TEST(ReportSeries, KeepsPeaksInBoundedMemory) {
  Series series;
  for (std::int64_t step = 1; step <= 1'000'000; ++step)
    series.add(step, step == 777'777 ? 50.0 : step == 333 ? -3.0 : 1.0);
  const auto points = series.points();
  EXPECT_LE(points.size(), 2u * Series::intervals);
  EXPECT_EQ(series.width(), 2048);
  EXPECT_THAT(points, testing::Contains(Point{777'777, 50.0}));
  EXPECT_THAT(points, testing::Contains(Point{333, -3.0}));
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end(),
                             [](const Point& a, const Point& b) { return a.step < b.step; }));
}
TEST(ReportSeries, AShortRunIsWhole) {
  Series series;
  for (std::int64_t step = 1; step < 512; ++step) series.add(step, static_cast<double>(step % 7));
  EXPECT_EQ(series.points().size(), 511u);
}

TEST(ReportPlot, TicksCoverTheValues) {
  for (const auto& [low, high] :
       {std::pair{0.0, 1.0}, {3.0, 3.0}, {-5.0, 12000.0}, {1e-9, 2e-9}, {0.0, 0.0}}) {
    const auto found = ticks(low, high);
    EXPECT_LE(found.front(), low);
    EXPECT_GE(found.back(), high);
    EXPECT_LE(found.size(), 7u);
  }
}

}  // namespace
}  // namespace holdfast::launcher::report

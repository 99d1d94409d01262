// A metrics.jsonl that grows and is replaced, and what sinks make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <regex>
#include <set>
#include <sstream>

#include "checkpoint/io/crc32c.hpp"
#include "launcher/sinks/openmetrics.hpp"
#include "launcher/sinks/tensorboard.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::launcher::sinks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Seen {
  std::vector<std::int64_t> steps;
  int restarts = 0, flushes = 0;
};

class SpySink : public Sink {
 public:
  explicit SpySink(Seen& seen) : seen_(seen) {}
  void restart() override {
    seen_.steps.clear();
    ++seen_.restarts;
  }
  void take(const nlohmann::json& line) override { seen_.steps.push_back(line["step"]); }
  void flush() override { ++seen_.flushes; }

 private:
  Seen& seen_;
};

class SinksTest : public testing::Test {
 protected:
  void append(const std::string& text) {
    const auto old = files::is_there(file_) ? files::read_text(file_) : "";
    scratch_.write("metrics.jsonl", old + text);
  }
  template <class T, class... Arguments>
  T& add(Arguments&&... arguments) {
    auto sink = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T& out = *sink;
    sinks_.push_back(std::move(sink));
    return out;
  }
  std::vector<std::string> event_files() const { return files::list(scratch_.path() / "tb"); }

  test::Scratch scratch_;
  std::filesystem::path file_ = std::filesystem::path(scratch_.path()) / "metrics.jsonl";
  std::vector<std::unique_ptr<Sink>> sinks_;
  MetricsFeed feed_{file_};
};

TEST_F(SinksTest, LinesComeOnceWholeAndInOrder) {
  Seen seen;
  add<SpySink>(seen);
  feed_.feed(sinks_);  // nothing is there
  append("{\"step\":1}\n{\"step\":2,\"loss\":null,\"lost\":true}\nnonsense\n[]\n{\"step\":\"3\"}\n{\"ste");
  feed_.feed(sinks_);
  EXPECT_THAT(seen.steps, ElementsAre(1));
  append("p\":4}\n");
  feed_.feed(sinks_);
  EXPECT_THAT(seen.steps, ElementsAre(1, 4));
  EXPECT_EQ(seen.restarts, 0);
  EXPECT_EQ(seen.flushes, 2);
}

TEST_F(SinksTest, OfALongFileOnlyTheEndIsReadInWholeLines) {
  Seen seen;
  add<SpySink>(seen);
  append("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  MetricsFeed end(file_, 15);  // the last line, and a part of that before
  end.feed(sinks_);
  EXPECT_THAT(seen.steps, ElementsAre(3));
  append("{\"step\":4}\n");
  end.feed(sinks_);
  EXPECT_THAT(seen.steps, ElementsAre(3, 4));
}
TEST_F(SinksTest, AFileThatWasReplacedComesAgainFromItsBeginning) {
  Seen seen;
  add<SpySink>(seen);
  append("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  feed_.feed(sinks_);
  files::replace_atomically(file_, "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"attempt\":2}\n{\"step\":4}\n");
  feed_.feed(sinks_);
  EXPECT_THAT(seen.steps, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(seen.restarts, 1);
}

TEST_F(SinksTest, RecordsHaveTheirPublishedChecksums) {
  const std::string record = tf_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(12, 3), "abc");
  std::uint32_t masked = 0;
  std::memcpy(&masked, record.data() + 15, 4);
  const std::uint32_t rotated = masked - 0xa282ead8u;
  EXPECT_EQ((rotated >> 17) | (rotated << 15), checkpoint::crc32c("abc", 3));
}

TEST_F(SinksTest, AnEventFileHoldsTorchtitansTagsAndAFurtherOneBeginsWhenTheRunGoesBack) {
  add<TensorBoard>(std::filesystem::path(scratch_.path()) / "tb");
  append("{\"step\":1,\"loss\":2.5,\"tokens_per_s\":7,\"time\":\"2026-01-02T03:04:05.500Z\"}\n");
  feed_.feed(sinks_);
  const auto first = event_files();
  ASSERT_EQ(first.size(), 1u);
  const std::string bytes = files::read_text(scratch_.path() / "tb" / first[0]);
  EXPECT_THAT(bytes, HasSubstr("brain.Event:2"));
  EXPECT_THAT(bytes, HasSubstr("loss_metrics/global_avg_loss"));
  EXPECT_THAT(bytes, Not(HasSubstr("grad_norm")));
  files::replace_atomically(file_, "{\"step\":1,\"loss\":2.25}\n");
  feed_.feed(sinks_);
  const auto second = event_files();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0], first[0]) << "TensorBoard reads them in this order";
  EXPECT_EQ(files::read_text(scratch_.path() / "tb" / first[0]), bytes);
  const std::string start_of_session("\x10\x01\x3a\x02\x08\x01", 6);  // at step 1
  EXPECT_THAT(files::read_text(scratch_.path() / "tb" / second[1]), HasSubstr(start_of_session));
}

/// Files of this process may grow to `bytes`, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ended_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, ended_);
  }

 private:
  rlimit before_{};
  void (*ended_)(int) = nullptr;
};

TEST_F(SinksTest, WhatAFullDiskDoesNotTakeComesLaterAndWholeToEachSink) {
  const auto prom = std::filesystem::path(scratch_.path()) / "run.prom";
  add<TensorBoard>(std::filesystem::path(scratch_.path()) / "tb");
  add<OpenMetrics>(prom, "a");
  append("{\"step\":1,\"loss\":2.5}\n");
  feed_.feed(sinks_);
  const auto events = std::filesystem::path(scratch_.path()) / "tb" / event_files().at(0);
  const std::string before = files::read_text(events);
  std::string steps;
  for (int step = 2; step < 100; ++step) steps += "{\"step\":" + std::to_string(step) + ",\"loss\":2.25}\n";
  append(steps);
  {
    const FullDisk full(before.size() + 1000);  // enough for the textfile, and for a part of the events
    EXPECT_THROW(feed_.feed(sinks_), Error);
  }
  EXPECT_EQ(files::read_text(events), before) << "no part of a record";
  EXPECT_THAT(files::read_text(prom), HasSubstr("holdfast_steps_total{run=\"a\"} 99\n"));
  feed_.feed(sinks_);
  const std::string after = files::read_text(events);
  EXPECT_EQ(after.substr(0, before.size()), before);
  std::size_t at = 0;
  int records = 0;
  for (std::uint64_t length = 0; at < after.size(); at += 8 + 4 + length + 4, ++records)
    std::memcpy(&length, after.data() + at, sizeof length);
  EXPECT_EQ(at, after.size());
  EXPECT_EQ(records, 2 + 99) << "version, start of the session, steps";
}

TEST_F(SinksTest, TheTextfileHasTheNewestValuesAndGoesWithItsSink) {
  const auto prom = std::filesystem::path(scratch_.path()) / "run.prom";
  auto& sink = add<OpenMetrics>(prom, "a \"b\"\\");
  EXPECT_EQ(sink.text(), "");
  append(
      "{\"step\":1,\"loss\":3,\"save_stall_s\":0.5}\n{\"step\":2,\"loss\":2.5,\"save_stall_s\":0.25,"
      "\"time\":\"1970-01-02T00:00:00.5Z\"}\n");
  feed_.feed(sinks_);
  const std::string text = files::read_text(prom);
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE holdfast_steps_total counter\nholdfast_steps_total{run=\"a \\\"b\\\"\\\\\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_loss{run=\"a \\\"b\\\"\\\\\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_save_stall_seconds_total{run=\"a \\\"b\\\"\\\\\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("} 86400.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("holdfast_learning_rate")));
  sinks_.clear();
  EXPECT_FALSE(files::is_there(prom));
}

TEST_F(SinksTest, AFileThatWasThereIsNotRemovedBeforeItIsReplaced) {
  const auto prom = scratch_.write("run.prom", "of an earlier run\n");
  add<OpenMetrics>(prom, "a");
  sinks_.clear();
  EXPECT_EQ(files::read_text(prom), "of an earlier run\n");
}

TEST_F(SinksTest, NoFileOfAnotherKindIsReplaced) {
  const auto refused = test::refusal_of([&] { OpenMetrics(scratch_.write("thesis.tex", "precious"), "a"); });
  EXPECT_EQ(refused.exit, Exit::usage);
  EXPECT_THAT(refused.text, HasSubstr("its name does not end in .prom"));
}

TEST_F(SinksTest, LossesBySourceAndMemoryHaveTheirTagsAndNames) {
  const auto line = nlohmann::json::parse(
      R"({"step":1,"loss_by_source":{"web":2.5,"a \"code\"":1.5,"none":null},"mfu":0.5,"device_peak_bytes":7})");
  const auto scalars = scalars_of(line);
  EXPECT_THAT(scalars,
              testing::IsSupersetOf({std::pair<std::string, double>{"holdfast/loss_by_source/web", 2.5},
                                     {"holdfast/loss_by_source/a \"code\"", 1.5},
                                     {"mfu(%)", 50},
                                     {"holdfast/device_peak_bytes", 7}}));
  EXPECT_EQ(scalars.size(), 4u);
  OpenMetrics sink(std::filesystem::path(scratch_.path()) / "run.prom", "r");
  sink.take(line);
  EXPECT_THAT(sink.text(), HasSubstr("# TYPE holdfast_source_loss gauge\n"
                                     "holdfast_source_loss{run=\"r\",source=\"a \\\"code\\\"\"} 1.5\n"
                                     "holdfast_source_loss{run=\"r\",source=\"web\"} 2.5\n"));
  EXPECT_THAT(sink.text(), HasSubstr("holdfast_mfu_ratio{run=\"r\"} 0.5\n"));
}

TEST_F(SinksTest, EachHeldOutFileHasItsTagAndName) {
  const auto line =
      nlohmann::json::parse(R"({"step":1,"held_out_loss":2.5,"held_out_by_file":{"web":2.5,"chat":1.5}})");
  EXPECT_THAT(scalars_of(line), testing::UnorderedElementsAre(
                                    std::pair<std::string, double>{"validation_metrics/loss", 2.5},
                                    std::pair<std::string, double>{"holdfast/held_out_by_file/web", 2.5},
                                    std::pair<std::string, double>{"holdfast/held_out_by_file/chat", 1.5}));
  OpenMetrics sink(std::filesystem::path(scratch_.path()) / "run.prom", "r");
  sink.take(line);
  EXPECT_THAT(sink.text(), HasSubstr("holdfast_held_out_file_loss{run=\"r\",file=\"chat\"} 1.5\n"));
}

/// A run with all that the sink can say of one.
std::string full_text(const std::filesystem::path& file) {
  OpenMetrics sink(file, "r");
  sink.take(nlohmann::json::parse(
      R"({"step":9,"loss":2,"held_out_loss":3,"grad_norm":1,"lr":0.1,"tokens":90,"tokens_per_s":10,"step_s":1,
          "data_wait_s":0.25,"mfu":0.5,"mfu_causal":0.4,"host_peak_bytes":1,"device_peak_bytes":2,"wire_bytes":3,
          "attempt":2,"save_stall_s":0.5,"saving":{"every":5,"persist_s":1,"bytes":7},
          "loss_by_source":{"web":2.5},"held_out_by_file":{"chat":1.5},"time":"2026-01-02T03:04:05Z"})"));
  StatusFacts facts{.name = "r", .steps = 100};
  AttemptRecord first, second;
  first.ended_at = 50;
  first.cause = "node lost";
  first.lost_steps = 3;
  second.placement = {"n0", "n1"};
  facts.state.attempts = {first, second};
  facts.state.lost = {"n2"};
  facts.state.durable_step = 5;
  facts.state.durable_at = 1.5;
  sink.record(facts);
  return sink.text();
}

TEST_F(SinksTest, TheTextfileSaysWhatTheRecordSays) {
  const std::string text = full_text(std::filesystem::path(scratch_.path()) / "run.prom");
  EXPECT_THAT(text, HasSubstr("holdfast_failures_total{run=\"r\",cause=\"node lost\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_nodes{run=\"r\",state=\"trains\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_nodes{run=\"r\",state=\"lost\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_lost_steps_total{run=\"r\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_durable_timestamp_seconds{run=\"r\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_time_seconds{run=\"r\",use=\"productive\"} 0\n"));
}

TEST_F(SinksTest, NobodyKnowsHowManyStepsAnotherProgramHasToDo) {
  const auto has_it = [](const StatusFacts& facts) {
    return std::ranges::count(families_of(facts), "holdfast_planned_steps", &Family::name) == 1;
  };
  EXPECT_TRUE(has_it({.name = "r", .steps = 100}));
  EXPECT_FALSE(has_it({.name = "r"}));
}

/// Names of ours in a text.
std::set<std::string> names_in(const std::string& text) {
  static const std::regex name("holdfast_[a-z_]*[a-z]");
  std::set<std::string> out;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at)
    out.insert(at->str());
  return out;
}

TEST_F(SinksTest, DashboardAndAlertsAskForNamesThatAreWrittenAndShowEach) {
  const auto written = names_in(full_text(std::filesystem::path(scratch_.path()) / "run.prom"));
  const std::filesystem::path folder = std::filesystem::path(HOLDFAST_SOURCE_DIR) / "packaging/grafana";
  std::set<std::string> shown;
  const auto dashboard = nlohmann::json::parse(files::read_text(folder / "dashboard.json"));
  for (const auto& panel : dashboard.at("panels"))
    if (panel.contains("targets"))
      for (const auto& target : panel.at("targets")) shown.merge(names_in(target.at("expr")));
  EXPECT_THAT(shown, testing::UnorderedElementsAreArray(written));
  std::string alerts;
  for (std::istringstream lines(files::read_text(folder / "alerts.yml")); lines;) {
    std::string line;
    std::getline(lines, line);
    if (line.find("expr:") != std::string::npos) alerts += line + "\n";
  }
  EXPECT_FALSE(names_in(alerts).empty());
  for (const auto& name : names_in(alerts)) EXPECT_THAT(written, testing::Contains(name));
}

}  // namespace
}  // namespace holdfast::launcher::sinks

// A metrics.jsonl that grows and is replaced, and what sinks make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/io/crc32c.hpp"
#include "launcher/sinks/openmetrics.hpp"
#include "launcher/sinks/tensorboard.hpp"
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

}  // namespace
}  // namespace holdfast::launcher::sinks

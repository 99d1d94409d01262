#include "src/train/common/metrics.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/files.hpp"
#include "tests/support/full_pipe.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path_.parent_path()); }
  void TearDown() override { std::filesystem::remove_all(path_.parent_path()); }
  std::vector<std::int64_t> steps() {
    EXPECT_TRUE(queue_.flush(patience));
    std::vector<std::int64_t> out;
    std::ifstream lines(path_);
    for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line)["step"]);
    return out;
  }
  nlohmann::json line(int number) const {  // from 1
    std::ifstream lines(path_);
    std::string text;
    for (int i = 0; i < number; ++i) std::getline(lines, text);
    return nlohmann::json::parse(text);
  }
  /// From now on the queue's thread hangs in a write, as on a file system that does not answer.
  void hang() {
    EXPECT_TRUE(queue_.add(0, [pipe = pipe_] { pipe->write(1); }));
  }

  static constexpr Millis patience{20000};
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("holdfast-metrics-" + std::to_string(::getpid())) / "metrics.jsonl";
  std::shared_ptr<FullPipe> pipe_ = std::make_shared<FullPipe>();
  WriteQueue queue_{16 << 10, patience};
};

TEST_F(MetricsTest, KeepsWhatTheRestoredStateHasSeenAndDropsTheRest) {
  {
    Metrics first(path_, 0, 1, queue_);
    EXPECT_FALSE(first.last_loss());
    for (int step = 1; step <= 7; ++step) first.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
    EXPECT_TRUE(queue_.flush(patience));
  }
  Metrics second(path_, 4, 2, queue_);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(second.last_loss(), 2.0);
  second.append({5, 9, 1, 1e-3, 50, 100, 0.1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(MetricsTest, StepsWhoseLinesDiedWithTheirWriterAreSaidToBeLost) {
  {
    Metrics first(path_, 0, 1, queue_);
    for (int step = 1; step <= 3; ++step) first.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
    EXPECT_TRUE(queue_.flush(patience));
  }
  Metrics second(path_, 6, 2, queue_);  // the other ranks had come to step 6
  second.append({7, 9, 1, 1e-3, 50, 100, 0.1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  for (int step = 4; step <= 6; ++step) {
    EXPECT_EQ(line(step)["lost"], true);
    EXPECT_TRUE(line(step)["loss"].is_null());
  }
  EXPECT_FALSE(line(7).contains("lost"));
}

TEST_F(MetricsTest, ARunThatBeginsAtALaterStepHasLostNothing) {
  Metrics metrics(path_, 500, 1, queue_);
  metrics.append({501, 9, 1, 1e-3, 50, 100, 0.1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{501}));
}

TEST_F(MetricsTest, AFileSystemThatHangsCostsNoLine) {
  Metrics metrics(path_, 0, 1, queue_);
  hang();
  for (int step = 1; step <= 20; ++step) metrics.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
  EXPECT_EQ(metrics.last_loss(), 10);
  EXPECT_FALSE(queue_.flush(Millis(20))) << "nothing hangs: this shows nothing";
  EXPECT_EQ(files::read_text(path_), "");
  pipe_->drain();
  std::vector<std::int64_t> all(20);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps(), all);
}

TEST_F(MetricsTest, WhatNoLongerFitsIntoMemoryIsCountedAndSaid) {
  Metrics metrics(path_, 0, 1, queue_);
  hang();
  ::testing::internal::CaptureStderr();
  for (int step = 1; step <= 200; ++step) metrics.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
  pipe_->drain();
  const auto written = static_cast<int>(steps().size());
  metrics.append({201, 1, 1, 1e-3, 10, 100, 0.1});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_GT(written, 20);
  EXPECT_LT(written, 200);
  EXPECT_THAT(said,
              HasSubstr("the metrics are without lines from step " + std::to_string(written + 1) + " on"));
  EXPECT_THAT(said, HasSubstr("without the " + std::to_string(200 - written) + " steps before step 201"));
  EXPECT_EQ(steps().back(), 201);
}

TEST_F(MetricsTest, GoingBackCutsTheLinesThatStillWait) {
  Metrics metrics(path_, 0, 1, queue_);
  hang();
  for (int step = 1; step <= 5; ++step) metrics.append({step, 1.0 * step, 1, 1e-3, 10 * step, 100, 0.1});
  metrics.roll_back(2);
  metrics.append({3, 30, 1, 1e-3, 10, 100, 0.1});
  pipe_->drain();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(line(2)["loss"], 2);
  EXPECT_EQ(line(3)["loss"], 30);
}

TEST_F(MetricsTest, SaysWhatSavingCostsWhereItDid) {
  Metrics metrics(path_, 0, 1, queue_);
  StepMetrics quiet{1, 1, 1, 1, 1, 1, 0.25}, saved{2, 1, 1, 1, 1, 1, 0.5};
  saved.save_stall_s = 0.125;
  saved.saving = SavingMetrics{50, 3, 2, 1, 0.5, 4, 1 << 20, 0.01, 0.02};
  metrics.append(quiet), metrics.append(saved);
  EXPECT_TRUE(queue_.flush(patience));
  std::ifstream lines(path_);
  std::string first, second;
  std::getline(lines, first), std::getline(lines, second);
  EXPECT_FALSE(nlohmann::json::parse(first).contains("saving"));
  const auto line = nlohmann::json::parse(second);
  EXPECT_EQ(line["save_stall_s"], 0.125);
  EXPECT_EQ(line["saving"], nlohmann::json::parse(
                                R"({"every":50,"begun":3,"skipped":2,"failed":1,"stall_s":0.5,"persist_s":4.0,
                                      "bytes":1048576,"overhead":0.01,"expected_loss":0.02})"));
  EXPECT_EQ(Metrics(path_, 2, 2, queue_).seconds_before(), 0.75) << "how long the run has lived";
}

TEST_F(MetricsTest, WhatIsNotKnownOfTheDeviceIsNotThere) {
  Metrics metrics(path_, 0, 1, queue_);
  StepMetrics known{2, 1, 1, 1, 1, 1, 0.5};
  known.data_wait_s = 0.25;
  known.host_peak_bytes = 10;
  known.device_peak_bytes = 20;
  known.mfu = Utilization{0.5, 0.375};
  known.loss_by_source = {{"web", 2.5}, {"code", 1.5}};
  metrics.append({1, 1, 1, 1, 1, 1, 0.5});
  metrics.append(known);
  EXPECT_TRUE(queue_.flush(patience));
  const auto first = line(1), second = line(2);
  for (const char* key : {"mfu", "mfu_causal", "device_peak_bytes", "loss_by_source"})
    EXPECT_FALSE(first.contains(key)) << key;
  EXPECT_EQ(second["data_wait_s"], 0.25);
  EXPECT_EQ(second["host_peak_bytes"], 10);
  EXPECT_EQ(second["device_peak_bytes"], 20);
  EXPECT_EQ(second["mfu"], 0.5);
  EXPECT_EQ(second["mfu_causal"], 0.375);
  EXPECT_EQ(second["loss_by_source"], nlohmann::json::parse(R"({"web":2.5,"code":1.5})"));
}

TEST_F(MetricsTest, TornAndStrangeLinesGo) {
  std::ofstream(path_) << "{\"step\":1,\"loss\":3}\nnonsense\n[]\n{\"step\":2,\"loss\":2}\n{\"step\":3,"
                          "\"loss\":1}";  // no
                                          // newline:
                                          // torn
  Metrics metrics(path_, 2, 2, queue_);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(metrics.last_loss(), 2.0);
}

TEST_F(MetricsTest, ARankOfAnEarlierAttemptWritesToAFileThatNobodySees) {
  Metrics frozen(path_, 0, 1, queue_);
  frozen.append({1, 1, 1, 1, 1, 1, 1});
  EXPECT_TRUE(queue_.flush(patience));
  Metrics now(path_, 1, 2, queue_);
  frozen.append({2, 1, 1, 1, 1, 1, 1});
  now.append({2, 5, 1, 1, 1, 1, 1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(line(2)["loss"], 5);
}

}  // namespace
}  // namespace holdfast::train

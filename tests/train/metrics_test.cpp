#include "src/train/metrics.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace holdfast::train {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path_.parent_path()); }
  void TearDown() override { std::filesystem::remove_all(path_.parent_path()); }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> out;
    std::ifstream lines(path_);
    for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line)["step"]);
    return out;
  }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("holdfast-metrics-" + std::to_string(::getpid())) / "metrics.jsonl";
};

TEST_F(MetricsTest, KeepsWhatTheRestoredStateHasSeenAndDropsTheRest) {
  {
    Metrics first(path_, 0, 1);
    EXPECT_FALSE(first.last_loss());
    for (int step = 1; step <= 7; ++step) first.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
  }
  Metrics second(path_, 4, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(second.last_loss(), 2.0);
  second.append({5, 9, 1, 1e-3, 50, 100, 0.1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(MetricsTest, AStepWhoseLineDiedWithItsWriterIsSaidToBeLost) {
  {
    Metrics first(path_, 0, 1);
    for (int step = 1; step <= 3; ++step) first.append({step, 0.5 * step, 1, 1e-3, 10 * step, 100, 0.1});
  }
  Metrics second(path_, 4, 2);  // the other ranks had come to step 4
  second.append({5, 9, 1, 1e-3, 50, 100, 0.1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  Metrics third(path_, 8, 3);  // several at once are another matter
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(MetricsTest, SaysWhatSavingCostsWhereItDid) {
  Metrics metrics(path_, 0, 1);
  StepMetrics quiet{1, 1, 1, 1, 1, 1, 0.25}, saved{2, 1, 1, 1, 1, 1, 0.5};
  saved.save_stall_s = 0.125;
  saved.saving = SavingMetrics{50, 3, 2, 1, 0.5, 4, 1 << 20, 0.01, 0.02};
  metrics.append(quiet), metrics.append(saved);
  std::ifstream lines(path_);
  std::string first, second;
  std::getline(lines, first), std::getline(lines, second);
  EXPECT_FALSE(nlohmann::json::parse(first).contains("saving"));
  const auto line = nlohmann::json::parse(second);
  EXPECT_EQ(line["save_stall_s"], 0.125);
  EXPECT_EQ(line["saving"], nlohmann::json::parse(
                                R"({"every":50,"begun":3,"skipped":2,"failed":1,"stall_s":0.5,"persist_s":4.0,
                                      "bytes":1048576,"overhead":0.01,"expected_loss":0.02})"));
  EXPECT_EQ(Metrics(path_, 2, 2).seconds_before(), 0.75) << "how long the run has lived";
}

TEST_F(MetricsTest, TornAndStrangeLinesGo) {
  std::ofstream(path_) << "{\"step\":1,\"loss\":3}\nnonsense\n[]\n{\"step\":2,\"loss\":2}\n{\"step\":3,"
                          "\"loss\":1}";  // no
                                          // newline:
                                          // torn
  Metrics metrics(path_, 10, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(metrics.last_loss(), 2.0);
}

TEST_F(MetricsTest, ARankOfAnEarlierAttemptWritesToAFileThatNobodySees) {
  Metrics frozen(path_, 0, 1);
  frozen.append({1, 1, 1, 1, 1, 1, 1});
  Metrics now(path_, 1, 2);
  frozen.append({2, 1, 1, 1, 1, 1, 1});
  now.append({2, 5, 1, 1, 1, 1, 1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(nlohmann::json::parse(files::read_text(path_).substr(files::read_text(path_).find('\n')))["loss"],
            5);
}

}  // namespace
}  // namespace holdfast::train

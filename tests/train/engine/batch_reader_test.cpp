#include "src/train/engine/batch_reader.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "src/base/as_size.hpp"
#include "src/data/token_file.hpp"

namespace holdfast::train {
namespace {

using ::testing::ElementsAreArray;

constexpr int sequence = 8, rows = 2, global_batch = 12;

/// A rank of two that computes three of the six micro-batches of a step.
BatchOrder order() { return {global_batch, {0, 4, 8}}; }

class BatchReaderTest : public ::testing::Test {
 protected:
  BatchReaderTest()
      : path_(std::filesystem::temp_directory_path() / ("holdfast-ahead-" + std::to_string(::getpid()))) {
    data::TokenFileWriter writer(path_, 1000);
    std::vector<std::int32_t> tokens(as_size(400 * sequence + 1));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 1000);
    writer.append(tokens);
    writer.finish();
    std::vector<data::Source> sources;
    sources.push_back({data::TokenFile::open(path_), 1});
    samples_.emplace(std::move(sources), sequence, 5, true);
  }
  ~BatchReaderTest() override { std::filesystem::remove(path_); }

  /// What read() must give, read at once.
  void expect_right(BatchReader& reader, std::int64_t first_sample, int micro_step) {
    MicroBatch memory(rows, sequence, true);
    const std::int64_t first = first_sample + order().of_micro_step[micro_step];
    const model::Batch right = memory.read(*samples_, first), got = reader.read(first_sample, micro_step);
    EXPECT_THAT(got.inputs, ElementsAreArray(right.inputs)) << first_sample << '.' << micro_step;
    EXPECT_THAT(got.labels, ElementsAreArray(right.labels));
    EXPECT_EQ(got.first_sample, first);
  }

  std::filesystem::path path_;
  std::optional<data::Samples> samples_;
};

TEST_F(BatchReaderTest, GivesTheOrderOfTheRunAtAnyDepth) {
  for (const int ahead : {2, 3, 7, 100}) {
    BatchReader reader{*samples_, rows, sequence, true, order(), ahead, {}};
    for (std::int64_t step = 3; step < 40; ++step)
      for (int micro_step = 0; micro_step < 3; ++micro_step)
        expect_right(reader, step * global_batch, micro_step);
  }
}

TEST_F(BatchReaderTest, FollowsJumps) {
  BatchReader reader{*samples_, rows, sequence, true, order(), 5, {}};
  for (const std::int64_t step : {0, 1, 9, 2, 2, 3, 0, 70})
    for (int micro_step = 0; micro_step < 3; ++micro_step)
      expect_right(reader, step * global_batch, micro_step);
  for (int i = 0; i < 200; ++i) expect_right(reader, i * 31 % 50 * global_batch, i % 3);
}

TEST_F(BatchReaderTest, ThrowsWhatReadingThrewWhenItIsAskedFor) {
  BatchReader reader{*samples_, rows, sequence, true, {global_batch, {0, -100'000'000}}, 4, {}};
  EXPECT_NO_THROW(reader.read(0, 0));
  EXPECT_ANY_THROW(reader.read(0, 1));
  EXPECT_NO_THROW(reader.read(global_batch, 0)) << "and goes on";
}

}  // namespace
}  // namespace holdfast::train

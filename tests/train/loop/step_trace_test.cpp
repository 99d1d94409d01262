// The trace's arithmetic and its text.
#include "src/train/loop/step_trace.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace holdfast::train {
namespace {

using tensor::Profile;
using tensor::Work;
using ::testing::HasSubstr;

TEST(StepTrace, OverlappingCollectivesCountOnce) {
  EXPECT_EQ(covered({}), 0);
  EXPECT_EQ(covered({{"a", "g", 10, 20}, {"b", "g", 30, 40}}), 20);
  EXPECT_EQ(covered({{"b", "g", 15, 40}, {"a", "g", 10, 20}, {"c", "g", 18, 19}}), 30);
}

TEST(StepTrace, HiddenIsTheShareThatNobodyWaitedFor) {
  TimeTable table;
  EXPECT_EQ(table.hidden(), 1.0);  // nothing was sent
  table.communicating = 2.0;
  EXPECT_EQ(table.hidden(), 1.0);
  table.work[as_size(Work::waiting)].seconds = 0.5;
  EXPECT_EQ(table.hidden(), 0.75);
  table.work[as_size(Work::waiting)].seconds = 3.0;  // for ranks that were late, too
  EXPECT_EQ(table.hidden(), 0.0);
}

TEST(StepTrace, TableNamesEveryKindOfWorkPerStep) {
  TimeTable table;
  table.steps = 2;
  table.seconds = 4.0;
  table.work[as_size(Work::matmul)] = {2.0, 6e9, 10};
  const std::string text = to_text(table);
  EXPECT_THAT(text, HasSubstr("matmul                        1000.00   50.0%         3"));
  EXPECT_THAT(text, HasSubstr("other                         1000.00   50.0%"));
  for (std::size_t kind = 0; kind < tensor::kinds_of_work; ++kind)
    EXPECT_THAT(text, HasSubstr(std::string(name_of(static_cast<Work>(kind)))));
}

TEST(StepTrace, JsonHasComputeAndOneThreadPerGroup) {
  const Clock::time_point at{std::chrono::microseconds(1000)};
  const auto json = nlohmann::json::parse(
      trace_json(3, {{Work::attention, "attention", at, at + std::chrono::microseconds(250)}},
                 {{"all-gather", "shard group 0", 1'100'000, 1'200'000, 64},
                  {"ordered reduce-scatter", "reductions 0", 1'300'000, 1'350'000, 32},
                  {"all-gather", "shard group 0", 1'400'000, 1'500'000, 64}}));
  std::vector<nlohmann::json> spans;
  for (const auto& event : json["traceEvents"])
    if (event["ph"] == "X") spans.push_back(event);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0]["ts"], 1000.0);
  EXPECT_EQ(spans[0]["dur"], 250.0);
  EXPECT_EQ(spans[0]["tid"], 0);
  EXPECT_EQ(spans[0]["pid"], 3);
  EXPECT_EQ(spans[1]["tid"], spans[3]["tid"]);
  EXPECT_NE(spans[1]["tid"], spans[2]["tid"]);
  EXPECT_EQ(spans[1]["args"]["bytes"], 64);
}

}  // namespace
}  // namespace holdfast::train

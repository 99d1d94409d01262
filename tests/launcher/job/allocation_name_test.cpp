// The name under which a run's allocation stands in the event log.
#include <gtest/gtest.h>

#include "launcher/job/job_monitor.hpp"
#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {
namespace {

RunState after(const std::string& job, bool over) {
  RunState state;
  state.job = job;
  if (over) state.outcome.emplace();
  return state;
}

TEST(AllocationName, ASecondRunByHandIsNotBoundByTheFirstOnesOutcome) {
  EXPECT_EQ(allocation_name(123, 0, true, {}), "123.0");
  EXPECT_EQ(allocation_name(123, 0, true, after("123.0", true)), "123.0.2");
  EXPECT_EQ(allocation_name(123, 0, true, after("123.0.2", true)), "123.0.3");
  EXPECT_EQ(allocation_name(123, 0, true, after("123.0.9", true)), "123.0.10");
}

TEST(AllocationName, WithoutAnOutcomeTheRunGoesOn) {
  EXPECT_EQ(allocation_name(123, 0, true, after("123.0", false)), "123.0");
  EXPECT_EQ(allocation_name(123, 0, true, after("123.0.2", false)), "123.0.2");
}

TEST(AllocationName, AnotherJobOrARequeueIsAnotherAllocationAnyway) {
  EXPECT_EQ(allocation_name(123, 1, true, after("123.0", true)), "123.1");
  EXPECT_EQ(allocation_name(123, 1, true, after("123.10", true)), "123.1");
  EXPECT_EQ(allocation_name(12, 0, true, after("123.0.2", true)), "12.0");
}

TEST(AllocationName, ABatchScriptThatStartsAKilledJobMonitorAgainReadsTheOutcome) {
  EXPECT_EQ(allocation_name(123, 0, false, after("123.0", true)), "123.0");
}

}  // namespace
}  // namespace holdfast::launcher

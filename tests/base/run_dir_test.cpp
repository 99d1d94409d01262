#include "src/base/run_dir.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(RunDir, AFlightRecordsNameSaysItsAttempt) {
  for (const int attempt : {1, 12345})
    for (const int rank : {0, 1023})
      EXPECT_EQ(attempt_of_flight_record(flight_record_file(attempt, rank)), attempt);
  const std::string name = flight_record_file(3, 4);
  const std::string stem = name.substr(0, name.size() - 3);  // without "3.4"
  for (const char* end :
       {"", "3", "3.", "3.4.", "3.4x", ".4", "-3.4", "3.-4", "x.4", "99999999999.4", " 3.4"})
    EXPECT_FALSE(attempt_of_flight_record(stem + end)) << end;
  EXPECT_TRUE(attempt_of_flight_record(stem + "3.4"));
}

}  // namespace
}  // namespace holdfast

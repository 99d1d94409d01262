#include "launcher/record/event_tables.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/base/env.hpp"

namespace holdfast::launcher {
namespace {

constexpr const char* begin_mark = "<!-- events: begin. scripts/golden_update.sh writes this part -->\n";
constexpr const char* end_mark = "<!-- events: end -->\n";

TEST(EventTables, GoldenPageHasThem) {
  const std::string path = std::string(HOLDFAST_SOURCE_DIR) + "/docs/run-directory.md";
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  std::string page = read.str();
  const auto begin = page.find(begin_mark), end = page.find(end_mark);
  ASSERT_NE(begin, std::string::npos) << path << " has lost the mark before its tables of events";
  ASSERT_NE(end, std::string::npos) << path << " has lost the mark behind its tables of events";
  const auto from = begin + std::string(begin_mark).size();
  const std::string wanted = "\n" + event_tables() + "\n";
  if (env::get("HOLDFAST_UPDATE_GOLDEN")) {
    std::ofstream(path) << page.replace(from, end - from, wanted);
    return;
  }
  EXPECT_EQ(page.substr(from, end - from), wanted)
      << "If the events have changed on purpose, run scripts/golden_update.sh and read the difference in "
      << path;
}

}  // namespace
}  // namespace holdfast::launcher

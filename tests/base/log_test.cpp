// The log of a process that must not wait for whoever reads it.
#include "src/base/log.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>

#include <regex>
#include <sstream>

#include "tests/support/full_pipe.hpp"

namespace holdfast {
namespace {

constexpr Millis log_patience{20000};

/// stderr is a full pipe for as long as this lives.
class BackgroundLog : public ::testing::Test {
 protected:
  BackgroundLog() : before_(::dup(STDERR_FILENO)) {
    ::dup2(pipe_.in(), STDERR_FILENO);
    log::start_in_background("rank 0");
  }
  ~BackgroundLog() override { end(); }
  /// All that was logged, by line.
  std::vector<std::string> end() {
    log::start("");
    ::dup2(before_.get(), STDERR_FILENO);
    std::istringstream text(pipe_.rest());
    std::vector<std::string> out;
    for (std::string line; std::getline(text, line);) out.push_back(line);
    return out;
  }
  FullPipe pipe_;
  files::Fd before_;
};

TEST_F(BackgroundLog, NobodyWaitsForAReaderAndNothingIsLost) {
  for (int i = 0; i < 500; ++i) log::info("line {}", i);
  EXPECT_FALSE(log::flush(Millis(20))) << "nothing hangs: this shows nothing";
  pipe_.drain();
  EXPECT_TRUE(log::flush(log_patience));
  const auto lines = end();
  ASSERT_EQ(lines.size(), 500u);
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_THAT(lines[i], ::testing::EndsWith("info rank 0: line " + std::to_string(i)));
}

TEST_F(BackgroundLog, LinesThatAreDroppedAreCounted) {
  const int many = 10000;  // and 3 MB
  const std::string long_text(300, 'x');
  for (int i = 0; i < many; ++i) log::info("line {} {}", i, long_text);
  pipe_.drain();
  EXPECT_TRUE(log::flush(log_patience));
  log::info("the next");
  EXPECT_TRUE(log::flush(log_patience));
  const auto lines = end();
  ASSERT_GT(lines.size(), 100u);
  ASSERT_LT(lines.size(), as_size(many));
  EXPECT_THAT(lines.back(), ::testing::EndsWith("rank 0: the next"));
  std::smatch match;
  const std::string& said = lines[lines.size() - 2];
  ASSERT_TRUE(std::regex_search(
      said, match,
      std::regex("warning rank 0: (\\d+) lines of this log were dropped, as it could not be written")))
      << said;
  EXPECT_EQ(lines.size() - 2 + std::stoul(match[1]), as_size(many));
}

}  // namespace
}  // namespace holdfast

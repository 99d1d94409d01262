// The ledger of failed nodes, shared by independent jobs.
#include "launcher/supervise/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double now = 1.8e9, day = 86400;

class Ledger : public testing::Test {
 protected:
  Ledger() : folder_(testing::TempDir() + "ledger-" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~Ledger() override { fs::remove_all(folder_); }
  void failed(const std::string& node, double at, bool hardware = true,
              const std::string& evidence = "it broke") {
    append_to_ledger(folder_, {at, "812.0", node, "gpu", evidence, hardware, 79, "GPU-5f"});
  }
  NodeHistory of(const std::string& node) {
    problem_.clear();
    return read_ledger(folder_, {node}, now, problem_).at(node);
  }
  unsigned mode(const fs::path& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 0777 : 0;
  }
  fs::path folder_;
  std::string problem_;
};

TEST_F(Ledger, FailuresFade) {
  failed("dgx001", now - 7 * day);
  failed("dgx001", now - 1);
  failed("dgx002", now - 90 * day);
  const NodeHistory history = of("dgx001");
  EXPECT_NEAR(history.weight, 1 + std::exp(-1.0), 1e-3);
  EXPECT_EQ(history.past_failures(), 2);
  ASSERT_EQ(history.last.size(), 2u);
  EXPECT_EQ(history.last[0].time, now - 1) << "newest first";
  EXPECT_EQ(history.last[0].job, "812.0");
  EXPECT_EQ(history.last[0].cause, "gpu");
  EXPECT_EQ(history.last[0].evidence, "it broke");
  EXPECT_EQ(history.last[0].xid, 79);
  EXPECT_EQ(history.last[0].gpu, "GPU-5f");
  EXPECT_EQ(of("dgx002").past_failures(), 0) << "long ago";
  EXPECT_EQ(of("dgx003").past_failures(), 0) << "never";
  EXPECT_EQ(problem_, "");
}

TEST_F(Ledger, WhatTheNodeIsNotToBlameForDoesNotCount) {
  failed("dgx001", now, false);
  EXPECT_EQ(of("dgx001").past_failures(), 0);
  EXPECT_EQ(of("dgx001").weight, 0);
}

TEST_F(Ledger, TornAndStrangeLinesArePassedOver) {
  failed("dgx001", now - 10);
  std::ofstream(folder_ / "dgx001.jsonl", std::ios::app)
      << "nonsense\n[1,2]\n{\"time\":\"yesterday\",\"cause\":\"gpu\",\"hardware\":true}\n{\"time\":9e99,"
         "\"cause\":\"gpu\","
         "\"hardware\":true}\n{\"time\":1799999999,\"cause\":\"gp";
  EXPECT_EQ(of("dgx001").past_failures(), 1);
  failed("dgx001", now - 5);
  EXPECT_EQ(of("dgx001").past_failures(), 2) << "the next line does not stick to the torn one";
  // The end of a write that is not complete, or was cut off.
  const std::string text = files::read_text(folder_ / "dgx001.jsonl");
  std::ofstream(folder_ / "dgx001.jsonl") << text.substr(0, text.size() - 3);
  EXPECT_EQ(of("dgx001").past_failures(), 1);
}

TEST_F(Ledger, LinesOfManyWritersStayWhole) {
  std::vector<std::thread> jobs;
  constexpr int writers = 4, lines = 100;
  for (int job = 0; job < writers; ++job)
    jobs.emplace_back([this] {
      for (int n = 0; n < lines; ++n) failed("dgx001", now, true, std::string(900, 'x'));
    });
  for (auto& job : jobs) job.join();
  // Only the end of a long file is read: 256 KiB of lines of about a kilobyte.
  const double weight = of("dgx001").weight;
  EXPECT_GT(weight, 200);
  EXPECT_EQ(weight, std::round(weight));
  std::ifstream file(folder_ / "dgx001.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;  // of a writer that saw another's line half written
    ASSERT_EQ(line.front(), '{') << line;
    ASSERT_EQ(line.back(), '}') << line;
    ++count;
  }
  EXPECT_EQ(count, writers * lines);
}

TEST_F(Ledger, LinesAreOneSmallWrite) {
  failed("dgx001", now, true, std::string(100000, '\\'));
  failed("dgx001", now, true, "caf\xc3\xa9 \xff\xfe \x1b[31m red\nnext");
  EXPECT_EQ(of("dgx001").past_failures(), 2);
  EXPECT_THAT(of("dgx001").last[1].evidence, testing::Not(HasSubstr("\x1b")));
  std::ifstream file(folder_ / "dgx001.jsonl");
  for (std::string line; std::getline(file, line);) EXPECT_LT(line.size(), 4096u);
}

TEST_F(Ledger, IsPrivateOrTheGroups) {
  failed("dgx001", now);
  EXPECT_EQ(mode(folder_), 0700u);
  EXPECT_EQ(mode(folder_ / "dgx001.jsonl"), 0600u);
  ASSERT_EQ(::chmod(folder_.c_str(), 0770), 0);
  failed("dgx002", now);
  EXPECT_EQ(mode(folder_ / "dgx002.jsonl"), 0660u);
}

TEST_F(Ledger, WhatCannotBeKeptIsAnErrorAndNothingIsWrittenElsewhere) {
  EXPECT_THROW(append_to_ledger(folder_ / "no" / "parent", {now, "1.0", "dgx001", "gpu", "", true, 0, ""}),
               Error);
  for (const char* name : {"../evil", "a/b", "", ".hidden", "a b", "-n;rm"})
    EXPECT_THROW(failed(name, now), Error) << name;
  failed("dgx001", now);
  fs::create_symlink("/etc/passwd", folder_ / "dgx002.jsonl");
  EXPECT_THROW(failed("dgx002", now), Error);
  EXPECT_EQ(of("dgx002").past_failures(), 0);
  EXPECT_NE(problem_, "");
  ASSERT_EQ(::mkfifo((folder_ / "dgx003.jsonl").c_str(), 0600), 0);
  EXPECT_THROW(failed("dgx003", now), Error);
  EXPECT_EQ(of("dgx003").past_failures(), 0) << "and does not wait for a writer";
  EXPECT_EQ(of("../evil").past_failures(), 0);
  std::string problem;
  EXPECT_EQ(read_ledger("/no/such/folder", {"dgx001"}, now, problem).at("dgx001").past_failures(), 0);
}

}  // namespace
}  // namespace holdfast::launcher

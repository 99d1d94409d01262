#include "launcher/job/data_jobs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/files.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class DataJobsTest : public testing::Test {
 protected:
  DataJobsTest() {
    std::string name = fs::temp_directory_path() / "holdfast-jobs-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    plan_ = read_data_plan(R"({"work": ")" + (folder_ / "out.bin.work").string() +
                           R"(", "parts": 5, "stages": [{"name": "tokens", "by_parts": true},
                           {"name": "merge", "by_parts": false}]})");
  }
  ~DataJobsTest() override { fs::remove_all(folder_); }
  std::vector<slurm::StageJob> jobs(const DataSubmit& options) const {
    return data_jobs(plan_, options, "/opt/holdfast-tool", "/home/u");
  }

  fs::path folder_;
  DataPlan plan_;
  slurm::FakeCluster cluster_{"n[1-4]"};
};

TEST(DataSubmitWords, ours_theirs_and_the_tools) {
  const DataSubmit read = read_data_submit(
      {"--input", "a b", "--tasks", "8", "--pack", "4096", "--parsable", "--", "-p", "cpu", "--tasks", "1"});
  EXPECT_THAT(read.prepare, ElementsAre("--input", "a b", "--pack", "4096"));
  EXPECT_THAT(read.sbatch, ElementsAre("-p", "cpu", "--tasks", "1"));
  EXPECT_EQ(read.tasks, 8);
  EXPECT_TRUE(read.parsable);
  EXPECT_FALSE(read.dry_run);
  EXPECT_EQ(read_data_submit({"--tasks=3"}).tasks, 3);
  for (const auto& bad :
       {std::vector<std::string>{}, {"--tasks"}, {"--tasks=0"}, {"--tasks", "x"}, {"--tasks=-1"}})
    EXPECT_THROW(read_data_submit(bad), Error);
}

TEST_F(DataJobsTest, a_chain_of_an_array_and_a_job) {
  DataSubmit options;
  options.tasks = 8;
  options.prepare = {"--input", "x"};
  const auto chain = jobs(options);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0].tasks, 5) << "no more than there are parts";
  EXPECT_TRUE(chain[0].add_workers);
  EXPECT_EQ(chain[1].tasks, 0);
  const auto ids = submit_data_jobs(plan_, chain, cluster_);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_THAT(cluster_.submissions[0].arguments, Contains("--array=0-4"));
  EXPECT_THAT(cluster_.submissions[0].arguments, Not(Contains(HasSubstr("--dependency"))));
  EXPECT_THAT(cluster_.submissions[1].arguments, Contains("--dependency=afterok:" + std::to_string(ids[0])));
  EXPECT_THAT(files::read_text(cluster_.submissions[0].script), HasSubstr("'--input' 'x' --stage tokens"));
}

TEST_F(DataJobsTest, workers_that_were_asked_for_stay) {
  DataSubmit options;
  options.tasks = 1;
  options.prepare = {"--workers=3"};
  EXPECT_FALSE(jobs(options)[0].add_workers);
}

TEST_F(DataJobsTest, a_chain_that_is_refused_leaves_nothing) {
  DataSubmit options;
  options.tasks = 2;
  auto chain = jobs(options);
  chain[1].extra = {"--array=1"};  // refused when the first one is in
  EXPECT_THROW(submit_data_jobs(plan_, chain, cluster_), Error);
  EXPECT_EQ(cluster_.submissions.size(), 1u);
  EXPECT_EQ(cluster_.cancelled.size(), 1u);
}

TEST(DataPlanText, what_cannot_be_read_is_an_error) {
  for (const char* text : {"", "{}", "[]", R"({"work": 1})"})
    EXPECT_THROW(read_data_plan(text), Error) << text;
}

}  // namespace
}  // namespace holdfast::launcher

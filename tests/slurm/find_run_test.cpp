#include "slurm/find_run.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "src/base/files.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::slurm {
namespace {

namespace fs = std::filesystem;

/// A working folder with runs.
class FindRun : public ::testing::Test {
 protected:
  FindRun() : before_(fs::current_path()) {
    std::string name = (fs::temp_directory_path() / "find-run-XXXXXX").string();
    folder = fs::canonical(::mkdtemp(name.data()));
    fs::current_path(folder);
  }
  ~FindRun() override {
    fs::current_path(before_);
    fs::remove_all(folder);
  }
  /// A run, and the job that owns it; 0: none.
  RunDir make(const fs::path& path, JobId owner) {
    const RunDir run{folder / path};
    fs::create_directories(run.path);
    files::replace_atomically(run.config(), "");
    if (owner > 0) files::replace_atomically(run.owner(), "{\"job_id\":" + std::to_string(owner) + "}");
    return run;
  }

  fs::path folder;
  FakeCluster cluster{"n[1-4]"};

 private:
  fs::path before_;
};

TEST_F(FindRun, tells_jobs_from_names) {
  for (const char* word : {"5", "17", "5_2"}) EXPECT_TRUE(may_be_job(word)) << word;
  for (const char* word : {"", "a", "5_", "_2", "5_2_3", "5_a", "5.1", "12345678901"})
    EXPECT_FALSE(may_be_job(word)) << word;
}

TEST_F(FindRun, finds_the_run_of_a_task_in_a_script_of_ones_own) {
  make("runs/other", 15);
  const RunDir run = make("sweep-1", 17);
  cluster.add_job(15, "sweep", "n1", "/home/me/sweep.sh");
  cluster.add_job(17, "sweep", "n2", "/home/me/sweep.sh");
  cluster.tasks = {{"15_2", 15}, {"15_1", 17}};
  EXPECT_EQ(find_run("15_1", cluster).path, run.path);
  EXPECT_EQ(find_run("17", cluster).path, run.path);
  EXPECT_EQ(find_run("15_2", cluster).path, folder / "runs/other");
  EXPECT_THROW(find_run("15_9", cluster), Error);
}

TEST_F(FindRun, finds_the_run_of_a_job_that_waits_for_its_turn) {
  const RunDir run = make("runs/train", 6);
  cluster.add_job(6, "train", "n1", run.script());
  cluster.add_job(7, "train", "", run.script());
  EXPECT_EQ(find_run("7", cluster).path, run.path);
}

TEST_F(FindRun, finds_the_run_of_a_job_that_has_ended) {
  const RunDir run = make("runs/train", 6);
  EXPECT_EQ(find_run("6", cluster).path, run.path);
  EXPECT_THROW(find_run("7", cluster), Error);
}

}  // namespace
}  // namespace holdfast::slurm

#include "slurm/job_env.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

using testing::ElementsAre;

/// Exactly these SLURM variables, for one test.
class JobEnvTest : public testing::Test {
 protected:
  void set(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) env::set(name.c_str(), value);
  }
  void TearDown() override { clear(); }

 private:
  static void clear() {
    for (const auto& entry : env::all())
      if (entry.starts_with("SLURM")) ::unsetenv(entry.substr(0, entry.find('=')).c_str());
  }
};

TEST_F(JobEnvTest, reads_a_batch_script) {
  set({{"SLURM_JOB_ID", "17"},
       {"SLURM_JOB_NAME", "a b"},
       {"SLURM_JOB_NODELIST", "dgx[001-003]"},
       {"SLURMD_NODENAME", "dgx001"},
       {"SLURM_RESTART_COUNT", "2"},
       {"SLURM_SUBMIT_DIR", "/home/a b"},
       {"SLURM_PROCID", "0"},
       {"SLURM_NTASKS", "3"}});
  ASSERT_TRUE(inside_a_job());
  const JobEnv here = job_env();
  EXPECT_EQ(here.job, 17);
  EXPECT_FALSE(here.step);
  EXPECT_EQ(here.job_name, "a b");
  EXPECT_THAT(here.nodes, ElementsAre("dgx001", "dgx002", "dgx003"));
  EXPECT_TRUE(here.in_batch_script());
  EXPECT_EQ(here.restarts, 2);
  EXPECT_EQ(here.submit_dir, "/home/a b");
  EXPECT_EQ(here.ntasks, 1) << "a batch script is one process, whatever the job's tasks";
  EXPECT_FALSE(here.end_time);
}

TEST_F(JobEnvTest, tells_the_task_of_an_array) {
  set({{"SLURM_JOB_ID", "17"}, {"SLURM_ARRAY_JOB_ID", "15"}, {"SLURM_ARRAY_TASK_ID", "0"}});
  EXPECT_EQ(job_env().job, 17);
  EXPECT_EQ(job_env().task, JobName(15, 0));
  set({{"SLURM_JOB_ID", "17"}});
  EXPECT_FALSE(job_env().task);
}

TEST_F(JobEnvTest, tells_a_heterogeneous_job) {
  set({{"SLURM_JOB_ID", "17"}, {"SLURM_HET_SIZE", "2"}});
  EXPECT_EQ(job_env().components, 2);
  set({{"SLURM_JOB_ID", "17"}});
  EXPECT_EQ(job_env().components, 1);
}

TEST_F(JobEnvTest, gpus_by_their_numbers_on_the_node) {
  const auto gpus = [this](std::map<std::string, std::string> variables) {
    variables["SLURM_JOB_ID"] = "17";
    set(variables);
    return job_env().gpus;
  };
  EXPECT_THAT(gpus({{"SLURM_STEP_GPUS", "4,5,12"}}), ElementsAre("4", "5", "12"));
  EXPECT_THAT(gpus({{"SLURM_JOB_GPUS", "3"}}), ElementsAre("3")) << "in a batch script";
  EXPECT_THAT(gpus({}), ElementsAre());
  for (const char* other : {"", "NoDevFiles", "0,", "0,../1", "MIG-1", "-1"})
    EXPECT_THAT(gpus({{"SLURM_STEP_GPUS", other}}), ElementsAre()) << other;
  env::set("CUDA_VISIBLE_DEVICES", "MIG-8f3a");
  EXPECT_THAT(gpus({{"SLURM_STEP_GPUS", "0"}}), ElementsAre());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(JobEnvTest, reads_a_step) {
  set({{"SLURM_JOB_ID", "17"},
       {"SLURM_STEP_ID", "4"},
       {"SLURM_JOB_NODELIST", "dgx[001-003]"},
       {"SLURMD_NODENAME", "dgx002"},
       {"SLURM_PROCID", "5"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NTASKS", "8"},
       {"SLURM_STEP_NUM_TASKS", "6"},
       {"SLURM_JOB_END_TIME", "1795000000"}});
  const JobEnv here = job_env();
  EXPECT_EQ(here.step, 4);
  EXPECT_FALSE(here.in_batch_script());
  EXPECT_EQ(here.procid, 5);
  EXPECT_EQ(here.localid, 1);
  EXPECT_EQ(here.ntasks, 6);
  EXPECT_EQ(here.end_time, 1795000000.0);
}

TEST_F(JobEnvTest, refuses_nonsense) {
  set({});
  EXPECT_FALSE(inside_a_job());
  EXPECT_THROW(job_env(), Error);
  for (const auto& [name, value] : std::map<std::string, std::string>{{"SLURM_JOB_ID", "x"},
                                                                      {"SLURM_RESTART_COUNT", "-1"},
                                                                      {"SLURM_PROCID", "1;2"},
                                                                      {"SLURM_JOB_NODELIST", "dgx["}}) {
    set({{"SLURM_JOB_ID", "17"}});
    env::set(name.c_str(), value);
    try {
      job_env();
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage) << name;
    }
  }
}

TEST_F(JobEnvTest, knows_no_step_in_the_batch_step) {
  set({{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "4294967291"}});
  EXPECT_FALSE(job_env().step);
}

TEST_F(JobEnvTest, tells_a_shell_of_salloc_from_the_batch_script) {
  set({{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURMD_NODENAME", "n1"}});
  EXPECT_TRUE(job_env().in_batch_script());
  env::set("SLURM_STEP_ID", "4294967290");
  EXPECT_FALSE(job_env().in_batch_script());
}

}  // namespace
}  // namespace holdfast::slurm

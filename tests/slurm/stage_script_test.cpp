#include "slurm/stage_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

using testing::ElementsAre;

StageJob job() {
  StageJob job;
  job.name = "tokens";
  job.command = {"/opt/holdfast-tool", "data", "prepare", "--input", "it's $(here)"};
  job.folder = "/home/u";
  job.logs = "/home/u/100%/jobs";
  return job;
}

TEST(StageScript, a_task_of_an_array) {
  StageJob array = job();
  array.tasks = 8;
  array.add_workers = true;
  EXPECT_EQ(stage_script(array),
            "#!/bin/bash\n"
            "# Written by `holdfast data submit`. What is done stays done: the same command may be submitted "
            "again.\n"
            "#SBATCH --nodes=1 --ntasks=1 --requeue --open-mode=append\n"
            "exec '/opt/holdfast-tool' 'data' 'prepare' '--input' 'it'\\''s $(here)' --stage tokens "
            "--task \"$SLURM_ARRAY_TASK_ID/8\" --workers \"${SLURM_CPUS_ON_NODE:-1}\"\n");
  EXPECT_THAT(stage_arguments(array, std::nullopt),
              ElementsAre("--job-name=data-tokens", "--chdir=/home/u",
                          "--output=/home/u/100%%/jobs/%x-%A_%a.log", "--array=0-7"));
}

TEST(StageScript, a_job_behind_another) {
  StageJob merge = job();
  merge.extra = {"-p", "cpu"};
  EXPECT_THAT(stage_script(merge), testing::EndsWith("--stage tokens\n"));
  EXPECT_THAT(
      stage_arguments(merge, 17),
      ElementsAre("--job-name=data-tokens", "--chdir=/home/u", "--output=/home/u/100%%/jobs/%x-%j.log",
                  "--dependency=afterok:17", "--kill-on-invalid-dep=yes", "-pcpu"));
}

TEST(StageScript, refusals) {
  StageJob bad = job();
  bad.extra = {"--array=0-3"};
  EXPECT_THROW(stage_arguments(bad, std::nullopt), Error);
  bad = job();
  bad.logs = "/home/a\nb";
  EXPECT_THROW(stage_arguments(bad, std::nullopt), Error);
}

}  // namespace
}  // namespace holdfast::slurm

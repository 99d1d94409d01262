// The commands for the owner of a job, as command lines.
#include "slurm/job_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::slurm {
namespace {

using testing::ElementsAre;

TEST(JobCommands, AreThoseOfTheTools) {
  EXPECT_THAT(signal_script_argv(17, "USR1"), ElementsAre("scancel", "--batch", "--signal=USR1", "17"));
  EXPECT_THAT(signal_all_argv(17, "TERM"), ElementsAre("scancel", "--full", "--signal=TERM", "17"));
  EXPECT_THAT(start_now_argv(17), ElementsAre("scontrol", "update", "JobId=17", "StartTime=now"));
}

}  // namespace
}  // namespace holdfast::slurm

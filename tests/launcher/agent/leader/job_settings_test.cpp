// The folder of a job's settings decides, as all of a run directory, what agents take for the user's own.
#include "launcher/agent/leader/job_settings.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/config/scratch.hpp"

namespace holdfast::launcher {
namespace {

TEST(JobSettingsFolder, IsClosedToTheGroupWhateverTheUmask) {
  const holdfast::test::Scratch scratch;
  const RunDir run{scratch.path()};
  const mode_t before = ::umask(002);
  JobSettings settings(run, 1);
  ::umask(before);
  struct stat facts {};
  ASSERT_EQ(::stat(run.configs().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777U, 0750U);
}

}  // namespace
}  // namespace holdfast::launcher

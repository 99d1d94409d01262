#include "slurm/energy.hpp"

#include <gmock/gmock.h>

#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::chrono::seconds long_enough{20};

TEST(Energy, of_each_allocation_of_the_jobs) {
  const auto read = read_energy(
      "18|2000|2600|7200000\n"
      "17|1000|1900|3600000\n"
      "17|1950|Unknown|0\n"  // requeued, and running
      "17|100|200|9000\n"    // another job, before the numbers began again
      "170|1000|1900|5\n"    // was not asked for
      "17.batch|1000|1900|5\n"
      "19|Unknown|Unknown|\n"  // waits
      "20|5000|6000|5\n",      // after the last event of the run
      {17, 18, 19, 20}, 900, 2700);
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_EQ(read[0].job, 17);
  EXPECT_EQ(read[0].start, 1000);
  EXPECT_EQ(read[0].end, 1900);
  EXPECT_EQ(read[0].joules, 3.6e6);
  EXPECT_FALSE(read[1].end || read[1].joules);
  EXPECT_EQ(read[2].job, 18);
  EXPECT_EQ(read[2].joules, 7.2e6);
}

TEST(Energy, what_was_not_measured_is_no_value) {
  // SLURM 22.05 with slurmdbd and without a plug-in that measures; job 1 was requeued.
  const auto pod = read_energy(
      "1|1795676137|1795676150|0\n2|1795676141|1795676142|0\n1|Unknown|Unknown|0\n3|Unknown|Unknown|0\n",
      {1, 2, 3}, 1795676100, 1795676160);
  ASSERT_THAT(pod, SizeIs(2));
  EXPECT_FALSE(pod[0].joules || pod[1].joules);
  for (const char* nothing : {"0", "", "0.000000", "18446744073709551614", "18446744073709551615",
                              "1.844674e+19", "-5", "nan", "inf", "12K", "Unknown", " "}) {
    const auto read = read_energy("17|1000|1900|" + std::string(nothing) + "\n", {17}, 0, 5000);
    ASSERT_THAT(read, SizeIs(1)) << nothing;
    EXPECT_FALSE(read[0].joules) << nothing;
  }
  EXPECT_EQ(read_energy("17|1000|1900|5.4e+06\n", {17}, 0, 5000).at(0).joules, 5.4e6)
      << "of an older release";
}

TEST(Energy, of_a_run_that_was_shorter_than_a_second) {
  // SLURM 22.05: by its whole seconds the job had ended when the leader wrote its first event.
  EXPECT_THAT(read_energy("12|1795689652|1795689653|0\n", {12}, 1795689653.2, 1795689653.45), SizeIs(1));
}

TEST(Energy, lines_that_cannot_be_read_are_left_out) {
  EXPECT_THAT(read_energy("", {17}, 0, 5000), IsEmpty());
  EXPECT_THAT(read_energy("17\n17|1000|1900\n|1000|1900|5\n17|1000|1900|5|6\nx|1000|1900|5\n"
                          "17x|1000|1900|5\n17|2026-11-26T06:00:00|1900|5\n",
                          {17}, 0, 5000),
              IsEmpty());
}

TEST(Energy, is_asked_for_by_job_and_has_a_source) {
  test::FakeTools tools;
  tools.answer("sacct", "17|1000|1900|3600000\n");
  tools.answer("scontrol", "AcctGatherEnergyType    = acct_gather_energy/ipmi\n");
  const auto known = energy({17, 18}, 900, 2000, long_enough);
  ASSERT_THAT(known.jobs, SizeIs(1));
  EXPECT_EQ(known.source, "ipmi");
  EXPECT_EQ(known.unknown, "");
  EXPECT_THAT(tools.calls(), HasSubstr("--jobs=17,18\n"));
  EXPECT_THAT(tools.environment("sacct"), HasSubstr("\nSLURM_TIME_FORMAT=%s\n"));
  for (const char* release : {"22.05", "24.11", "26.05"}) {  // pods, whose nodes measure nothing
    tools.answer("scontrol", test::FakeTools::captured("site_config.txt", release));
    EXPECT_EQ(energy({17}, 900, 2000, long_enough).source, "") << release;
  }
  tools.answer("scontrol", "", "slurm_load_ctl_conf error: Unable to contact slurm controller", 1);
  const auto without = energy({17}, 900, 2000, long_enough);
  EXPECT_THAT(without.jobs, SizeIs(1));
  EXPECT_THAT(without.unknown, HasSubstr("Unable to contact slurm controller"));
}

TEST(Energy, why_it_is_not_known) {
  test::FakeTools tools;
  const auto why = [] { return energy({17}, 0, 5000, long_enough).unknown; };
  tools.answer("sacct", "", "Slurm accounting storage is disabled\n", 1);
  EXPECT_EQ(why(), "SLURM keeps no accounts here");
  tools.answer("sacct", "", "sacct: error: Problem talking to the database: Connection refused\n", 1);
  EXPECT_EQ(why(), "'sacct' failed: Problem talking to the database: Connection refused");
  tools.answer("sacct", "");
  EXPECT_EQ(why(), "SLURM's accounts have none of its jobs");
  EXPECT_THAT(tools.calls(), Not(HasSubstr("[ scontrol")));
  tools.hang("sacct");
  EXPECT_THAT(energy({17}, 0, 5000, std::chrono::milliseconds(100)).unknown,
              HasSubstr("'sacct' took longer than"));
  env::set("PATH", "/nowhere");
  EXPECT_THAT(why(), HasSubstr("SLURM's tool 'sacct' cannot be started"));
}

}  // namespace
}  // namespace holdfast::slurm

// `holdfast avail`, with SLURM's tools played.
#include <gmock/gmock.h>
#include <pwd.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/env.hpp"
#include "src/base/subprocess.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Avail : public ::testing::Test {
 protected:
  Avail() {
    tools.answer(
        "sinfo",
        "n1|debug|up|30:00|idle|(null)\n"
        "n1|gpu*|up|2-00:00:00|idle|gpu:h100:8(S:0-1)\nn2|gpu*|up|2-00:00:00|mixed|gpu:h100:8(S:0-1)\n"
        "n3|gpu*|up|2-00:00:00|idle|gpu:h100:8(S:0-1)\nn4|gpu*|up|2-00:00:00|idle|gpu:a100:4\n"
        "n5|gpu*|up|2-00:00:00|reserved|gpu:a100:4\nn6|gpu*|up|2-00:00:00|down*|gpu:a100:4\n");
    tools.answer(
        "scontrol",
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 "
        "Nodes=n[3-6]\nSwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=leaf[1-2]\n"
        "ReservationName=course StartTime=1795624800 EndTime=1795632000 Duration=02:00:00 Nodes=n5 "
        "NodeCnt=1 Users=(null) Accounts=teaching State=ACTIVE\n"
        "AccountingStorageEnforce = associations,limits\nClusterName = hpc1\n"
        "ClusterName=hpc1 Account=users UserName=" +
            name_of_user() +
            "(7) Partition= ID=3\n    ParentAccount= DefAssoc=Yes\n    MaxJobs=2(1) MaxTRESPJ=node=4\n"
            "ClusterName=hpc1 Account=users UserName= Partition= ID=2\n    GrpTRES=node=8(5)\n");
    tools.answer("sacctmgr", "users|low\nlow||||||||||02:00:00|\n");
  }
  static std::string name_of_user() {
    const passwd* user = ::getpwuid(::geteuid());
    return user ? user->pw_name : std::to_string(::geteuid());
  }
  static Finished avail(std::vector<std::string> words = {}) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM, "avail"};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = env::without({"HOLDFAST_", "TZ="});
    command.environment->push_back("TZ=UTC");
    return run(command, std::chrono::seconds(60));
  }
  test::FakeTools tools;
};

TEST_F(Avail, ShowsPartitionsWithTheLargestBlockThatIsIdle) {
  const auto done = avail();
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out,
              ContainsRegex("gpu\\* +2-00:00:00 +6 +3 +1 +1 +1 +4 a100, 8 h100 +2 \\(leaf2\\)\ndebug"));
  EXPECT_THAT(done.out, ContainsRegex("debug +30:00 +1 +1 +0 +0 +0 +none +1 \\(leaf1\\)"));
  EXPECT_THAT(done.out, HasSubstr("reservation course: 1 nodes (n5), now, 2026-11-25 16:40 to 2026-11-25 "
                                  "18:40, for accounts teaching\n"));
  EXPECT_THAT(done.out, HasSubstr("your accounts (-A): users\nyour QOS (-q): low\n"
                                  "your account users: MaxJobs 2 (used: 1), MaxTRES node=4\n"
                                  "account users, all its users together: GrpTRES node=8 (used: node=5)\n"
                                  "QOS low: MaxWall 02:00:00\n"));
}

TEST_F(Avail, PrintsJson) {
  const auto read = nlohmann::json::parse(avail({"--json", "-p", "gpu"}).out);
  ASSERT_EQ(read["partitions"].size(), 1u);
  const auto& gpu = read["partitions"][0];
  EXPECT_EQ(gpu["idle_nodes"], "n[1,3-4]");
  EXPECT_EQ(gpu["blocks"][0], (nlohmann::json{{"name", "leaf2"}, {"idle", 2}, {"idle_nodes", "n[3-4]"}}));
  EXPECT_EQ(read["accounts"], nlohmann::json({"users"}));
  EXPECT_EQ(read["limits"][0]["limits"]["MaxTRES"], "node=4");
  EXPECT_EQ(read["limits"][1]["used"], (nlohmann::json{{"GrpTRES", "node=5"}}));
  EXPECT_TRUE(read["unknown"].empty());
}

TEST_F(Avail, KnowsNoSuchPartition) {
  const auto done = avail({"-p", "cpu"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("SLURM tells of no partition cpu. 'holdfast avail' lists them"));
}

}  // namespace
}  // namespace holdfast

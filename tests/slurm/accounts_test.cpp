#include "slurm/accounts.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr std::chrono::seconds ample{20};
constexpr const char* enforced =
    "AccountingStorageEnforce = associations,limits,qos\nClusterName             = minipod\n";

/// scontrol's record of an association.
std::string association(const std::string& account, const std::string& user, const std::string& limits,
                        const std::string& parent = "", bool is_default = false) {
  return "ClusterName=minipod Account=" + account + " UserName=" + user + " Partition= Priority=0 ID=7\n" +
         "    SharesRaw/Norm/Level/Factor=1/0.50/3/0.00\n    ParentAccount=" + parent +
         " Lft=2 DefAssoc=" + (is_default ? "Yes" : "No") + "\n    " + limits + "\n";
}

TEST(Accounts, limits_and_what_is_used_of_them) {
  const auto read = read_associations(
      "Current Association Manager state\n\nAssociation Records\n\n" +
      association("physics", "",
                  "GrpJobs=N(2) GrpJobsAccrue=N(0)\n    GrpSubmitJobs=9(3) GrpWall=N(0.53)\n"
                  "    GrpTRES=cpu=N(4),mem=N(0),node=2(1),gres/gpu=16(8)\n    MaxJobs= MaxWallPJ=1500\n"
                  "    MaxTRESPJ=node=4\n    MaxTRESPN=",
                  "root(1)") +
      association("physics", "me(61000)", "MaxJobs=3(1) MaxWallPJ=10", "", true) +
      "\nQOS Records\n\nQOS=low(5)\n    GrpJobs=7(0)\n");
  ASSERT_THAT(read, SizeIs(2)) << "a QOS is none";
  EXPECT_EQ(read[0].account, "physics");
  EXPECT_EQ(read[0].user, "");
  EXPECT_EQ(read[0].parent, "root");
  EXPECT_THAT(read[0].limits,
              ElementsAre(Pair("GrpSubmit", Limit{"9", "3"}),
                          Pair("GrpTRES", Limit{"node=2,gres/gpu=16", "node=1,gres/gpu=8"}),
                          Pair("MaxTRES", Limit{"node=4", ""}), Pair("MaxWall", Limit{"1-01:00:00", ""})));
  EXPECT_EQ(read[1].user, "me");
  EXPECT_TRUE(read[1].is_default);
  EXPECT_THAT(read[1].limits,
              ElementsAre(Pair("MaxJobs", Limit{"3", "1"}), Pair("MaxWall", Limit{"00:10:00", ""})));
  EXPECT_THAT(read_associations("No associations currently cached in Slurm.\n"), IsEmpty());
}

TEST(Accounts, limits_of_a_qos) {
  const auto read = read_qos_limits("low|||||||||||\nshort||||||||||00:10:00|\nwrong|||\n\n");
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].qos, "short");
  EXPECT_THAT(read[0].limits, ElementsAre(Pair("MaxWall", Limit{"00:10:00", ""})));
}

/// One of these records.
const Association& association_in(const std::vector<Association>& all, const std::string& account,
                                  const std::string& user) {
  const auto it = std::ranges::find_if(
      all, [&](const Association& one) { return one.account == account && one.user == user; });
  if (it == all.end()) throw std::runtime_error("no association of " + account + "/" + user);
  return *it;
}

TEST(Accounts, of_the_same_pod_in_each_release) {
  for (const char* release : {"22.05", "24.11", "26.05"}) {
    SCOPED_TRACE(release);
    const auto all = read_associations(test::FakeTools::captured("associations.txt", release));
    EXPECT_TRUE(association_in(all, "users", "holdfast").is_default);
    EXPECT_THAT(association_in(all, "users", "holdfast").limits, IsEmpty());
    EXPECT_THAT(association_in(all, "physics", "holdfast").limits,
                ElementsAre(Pair("MaxJobs", Limit{"2", "1"}), Pair("MaxWall", Limit{"1-12:00:00", ""})));
    EXPECT_EQ(association_in(all, "physics", "").parent, "science");
    EXPECT_THAT(association_in(all, "physics", "").limits,
                ElementsAre(Pair("GrpTRES", Limit{"node=2", "node=1"})));
    EXPECT_THAT(association_in(all, "science", "").limits,
                ElementsAre(Pair("GrpTRES", Limit{"node=8", "node=1"})));
    const auto qos = read_qos_limits(test::FakeTools::captured("qos_limits.txt", release));
    ASSERT_THAT(qos, SizeIs(2)) << "the others have no limits";
    const auto named_short = std::ranges::find(qos, "short", &Limits::qos);
    ASSERT_NE(named_short, qos.end());
    EXPECT_THAT(named_short->limits,
                ElementsAre(Pair("MaxJobsPU", Limit{"3", ""}), Pair("MaxTRESPU", Limit{"node=1", ""}),
                            Pair("MaxWall", Limit{"00:10:00", ""})));
  }
}

class AccountsOf : public ::testing::Test {
 protected:
  Accounts ask() {
    unknown.clear();
    return accounts_of("me", ample, unknown);
  }
  /// To every question.
  void scontrol_says(const std::string& text) { tools.answer("scontrol", enforced + text); }
  test::FakeTools tools;
  std::vector<std::string> unknown;
};

TEST_F(AccountsOf, a_user_are_those_of_this_cluster_with_the_limits_above_them) {
  scontrol_says(association("users", "me(61000)", "MaxJobs=2(1)") +
                association("physics", "me(61000)", "MaxJobs=", "", true) +
                association("physics", "you(61001)", "MaxJobs=9(9)") +
                association("physics", "", "GrpTRES=node=8(3)\n    MaxJobs=4(0)", "science(3)") +
                association("science", "", "GrpTRES=node=100(3)", "root(1)"));
  tools.answer("sacctmgr", "physics|high,low\nusers|low\nhigh|2||||||||||\n");
  const auto found = ask();
  EXPECT_THAT(unknown, IsEmpty());
  ASSERT_TRUE(found.accounts);
  EXPECT_THAT(*found.accounts, ElementsAre("physics", "users")) << "the default first";
  EXPECT_THAT(found.qos, ElementsAre("high", "low"));
  EXPECT_THAT(
      found.limits,
      ElementsAre(AllOf(Field(&Limits::account, "users"), Field(&Limits::shared, false)),
                  AllOf(Field(&Limits::account, "physics"), Field(&Limits::shared, true),
                        Field(&Limits::limits, ElementsAre(Pair("GrpTRES", Limit{"node=8", "node=3"})))),
                  AllOf(Field(&Limits::account, "science"), Field(&Limits::shared, true)),
                  Field(&Limits::qos, "high")));
  EXPECT_THAT(tools.calls(), AllOf(HasSubstr("\nusers=me\n"), HasSubstr("\nuser=me\ncluster=minipod\n"),
                                   HasSubstr("\nname=high,low\n")));
}

TEST_F(AccountsOf, somebody_whom_slurm_does_not_know) {
  scontrol_says(association("users", "you(61001)", "MaxJobs=2(1)"));
  const auto found = ask();
  ASSERT_TRUE(found.accounts);
  EXPECT_THAT(*found.accounts, IsEmpty());
  EXPECT_THAT(found.limits, IsEmpty());
}

TEST_F(AccountsOf, a_cluster_that_enforces_none) {
  const std::string mine = association("users", "me(61000)", "MaxJobs=2(1)");
  tools.answer("scontrol", "AccountingStorageEnforce = none\n" + mine);
  EXPECT_FALSE(ask().accounts);
  tools.answer("scontrol", "AccountingStorageEnforce = associations\n" + mine);
  tools.answer("sacctmgr", "users|low\n");
  const auto found = ask();
  EXPECT_THAT(*found.accounts, ElementsAre("users"));
  EXPECT_THAT(found.qos, ElementsAre("low"));
  EXPECT_THAT(found.limits, IsEmpty()) << "nobody heeds them";
  EXPECT_THAT(tools.calls(), Not(HasSubstr("name=low")));
}

TEST_F(AccountsOf, what_slurmdbd_does_not_say_is_unknown) {
  scontrol_says(association("users", "me(61000)", "MaxJobs=2(1)"));
  tools.answer("sacctmgr", "", "sacctmgr: error: Problem talking to the database: Connection refused\n", 1);
  EXPECT_THAT(ask().limits, SizeIs(1));
  EXPECT_THAT(unknown, ElementsAre(AllOf(HasSubstr("QOS: "), HasSubstr("Connection refused"))));
  tools.hang("sacctmgr");
  EXPECT_THAT(accounts_of("me", std::chrono::milliseconds(500), unknown).limits, SizeIs(1));
  EXPECT_THAT(unknown.back(),
              HasSubstr("QOS: SLURM's accounting does not answer ('sacctmgr' took longer than"));
}

}  // namespace
}  // namespace holdfast::slurm

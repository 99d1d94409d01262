// The table of faults, and what a drill file may contain.
#include "launcher/drill/drill_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DrillPlan read(std::string_view text) { return read_drill(config::parse_document(text, "c.toml")); }

std::string complaint(std::string_view text) {
  try {
    read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "no error";
}

TEST(Faults, AreManyAndEachIsWhole) {
  EXPECT_GE(faults().size(), 30u);
  std::set<std::string> names;
  for (const auto& f : faults()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_EQ(fault_called(f.name), &f);
    EXPECT_STRNE(f.breaks, "") << f.name;
    EXPECT_STRNE(f.act, "") << f.name;
    EXPECT_EQ(f.injector == Injector::rank, f.injector == Injector::rank && f.target == Target::rank)
        << f.name;
    EXPECT_TRUE(f.undo[0] == '\0' || f.seconds > 0) << f.name << " is taken back, and does not say when";
    EXPECT_TRUE(f.injector != Injector::slurm || f.target == Target::nothing) << f.name;
    EXPECT_EQ(*target_called(name_of(f.target)), f.target);
    EXPECT_STRNE(name_of(f.injector), "");
  }
  EXPECT_EQ(fault_called("nothing_such"), nullptr);
}

TEST(Drill, IsRead) {
  const DrillPlan plan = read(R"(
[drill]
name = "nodes"
job = "job.toml"
seed = 7
limit_s = 90
set = ["train.steps=50"]

[[case]]
faults = ["node_killed"]

[[case]]
name = "pair"
faults = ["node_cut_healed on leader for 2.5 s at step 30", "promoted_killed when starting", "rank_killed after 3 s"]
repeat = 4
max_lost = 9
set = ["checkpoint.every=0"]

[[case]]
name = "soak"
faults = ["rank_killed", "node_returns for 4 s"]
draw = 100
gap = "3-9"
limit_s = 900
)");
  EXPECT_EQ(plan.name, "nodes");
  EXPECT_EQ(plan.job, "job.toml");
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_THAT(plan.set, ElementsAre("train.steps=50"));
  ASSERT_EQ(plan.cases.size(), 3u);
  EXPECT_EQ(plan.cases[0].name, "node_killed");
  EXPECT_EQ(plan.cases[0].limit_s, 90);
  EXPECT_EQ(plan.cases[0].faults[0].when.kind, When::Kind::step);

  const DrillCase& pair = plan.cases[1];
  ASSERT_EQ(pair.faults.size(), 3u);
  EXPECT_EQ(pair.repeat, 4);
  EXPECT_EQ(pair.max_lost, 9);
  EXPECT_EQ(pair.faults[0].target, Target::leader);
  EXPECT_EQ(pair.faults[0].seconds, 2.5);
  EXPECT_EQ(pair.faults[0].when.steps, (NumberRange{30, 30}));
  EXPECT_EQ(pair.faults[1].when.kind, When::Kind::phase);
  EXPECT_EQ(pair.faults[1].when.phase, "starting");
  EXPECT_EQ(pair.faults[2].when.kind, When::Kind::after);
  EXPECT_EQ(pair.faults[2].when.seconds, 3);

  EXPECT_EQ(plan.cases[2].draw, 100);
  EXPECT_EQ(plan.cases[2].gap, (NumberRange{3, 9}));
  EXPECT_EQ(plan.cases[2].limit_s, 900);
}

TEST(Drill, TheEndIsThatOfTheFaultsUnlessStated) {
  EXPECT_EQ(read("[[case]]\nfaults = [\"stopped\"]").cases[0].exit_code, 93);
  EXPECT_EQ(read("[[case]]\nfaults = [\"node_killed\"]\nexit_code = 5").cases[0].exit_code, 5);
  EXPECT_EQ(read("[[case]]\nfaults = [\"node_killed\"]").cases[0].exit_code, 0);
}

TEST(Drill, SaysWhereAndWhatIsWrong) {
  const std::string fine = "[[case]]\nfaults = [\"node_killed\"]\n";
  EXPECT_THAT(complaint("[drill]\nname = \"x\"\n"), HasSubstr("no [[case]]"));
  EXPECT_THAT(complaint(fine + "repeet = 3\n"),
              AllOf(HasSubstr("c.toml:3"), HasSubstr("Did you mean repeat?")));
  EXPECT_THAT(complaint(fine + "repeat = 0\n"), HasSubstr("out of range"));
  EXPECT_THAT(complaint(fine + "repeat = \"3\"\n"), HasSubstr("wrong type"));
  for (const char* limit : {"-1", "0", "nan", "1e9"})
    EXPECT_THAT(complaint(fine + "limit_s = " + limit + "\n"), HasSubstr("limit_s = ")) << limit;
  EXPECT_THAT(complaint(fine + "gap = \"9-3\"\n"), HasSubstr("not a range"));
  EXPECT_THAT(complaint(fine + fine), HasSubstr("two cases are called node_killed"));
  EXPECT_THAT(complaint(fine + "name = \"../x\"\n"), HasSubstr("cannot be the name"));
  EXPECT_THAT(complaint("[[cases]]\nfaults = []\n"), HasSubstr("unknown table cases"));
  EXPECT_THAT(complaint("[[case]]\nname = \"x\"\n"), HasSubstr("has no faults"));
  EXPECT_THAT(complaint("[[case]]\nfaults = [\"stopped\"]\ndraw = 3\n"), HasSubstr("soak"));
  const auto of = [](const std::string& words) {
    return complaint("[[case]]\nfaults = [\"" + words + "\"]\n");
  };
  EXPECT_THAT(of("node_kiled"), HasSubstr("Did you mean node_killed?"));
  EXPECT_THAT(of("node_killed at 30"), HasSubstr("'step N'"));
  EXPECT_THAT(of("node_killed at step"), HasSubstr("where a step should be"));
  EXPECT_THAT(of("node_killed at step 0"), HasSubstr("not a range"));
  EXPECT_THAT(of("node_killed when sleeping"), HasSubstr("no phase"));
  EXPECT_THAT(of("node_killed on the moon"), HasSubstr("no target 'the'"));
  EXPECT_THAT(of("node_killed on rank"), HasSubstr("cannot have the target"));
  EXPECT_THAT(of("rank_killed on active"), HasSubstr("cannot have the target"));
  EXPECT_THAT(of("slurmctld_down on leader"), HasSubstr("cannot have the target"));
  EXPECT_THAT(of("node_frozen for 5"), HasSubstr("'s'"));
  EXPECT_THAT(of("node_frozen for -5 s"), HasSubstr("not a number of seconds"));
  EXPECT_THAT(of("node_killed low_priority"), HasSubstr("not understood at 'low_priority'"));
  EXPECT_THAT(of(""), HasSubstr("no name"));
}

}  // namespace
}  // namespace holdfast::launcher

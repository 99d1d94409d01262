// The agent and its node: health, records, faults of a drill, processes and files that others have left
// behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/agent/daemon/inject.hpp"
#include "launcher/agent/daemon/node_check.hpp"
#include "launcher/agent/leader/batch_script_fallback.hpp"
#include "launcher/agent/leader/leader.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/error.hpp"
#include "src/base/subprocess.hpp"
#include "src/control/private_place.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Fitness = control::NodeHealth::Fitness;

TEST(NodeHealth, IsReadFromTheDoctor) {
  const auto health =
      read_health(R"({"schema_version":1,"fitness":"critical","why":"disk full","findings":[]})", "");
  EXPECT_EQ(health.fitness, Fitness::critical);
  EXPECT_EQ(health.why, "disk full");
  EXPECT_EQ(read_health(R"({"fitness":"ok"})", "").fitness, Fitness::ok);
  const auto found =
      read_health(R"({"fitness":"critical","why":"x","findings":[{"check":"a","fitness":"ok","says":""},
      {"check":"b","fitness":"critical","says":"down","advice":""},{"check":"c","fitness":"warning","says":"hot"},
      {"check":"d","fitness":3},7]})",
                  "")
          .findings;
  ASSERT_EQ(found.size(), 2u) << "those that are bad, as far as they can be read";
  EXPECT_EQ(found[0].check, "b");
  EXPECT_EQ(found[0].says, "down");
  EXPECT_EQ(found[1].fitness, Fitness::warning);
  for (const char* nonsense : {"", "{", "[]", R"({"fitness":"splendid"})", R"({"fitness":3})"}) {
    EXPECT_EQ(read_health(nonsense, "").fitness, Fitness::unknown) << nonsense;
    EXPECT_FALSE(read_health(nonsense, "").why.empty());
  }
  EXPECT_EQ(read_health("", "it did not end").why, "it did not end");
}

TEST(NodeHealth, TheProbesHashIsSixteenDigits) {
  EXPECT_EQ(read_probe("0123456789abcdef kernels 7 amx\n"), "0123456789abcdef");
  EXPECT_EQ(read_probe("a word before\n0123456789abcdef\n"), "0123456789abcdef");
  EXPECT_EQ(read_probe("0123456789abcde kernels\n"), "");
  EXPECT_EQ(read_probe("0123456789abcdef0 kernels\n"), "");
  EXPECT_EQ(read_probe(""), "");
}

std::string admin_line_of(const json& ended) {
  return admin_line(std::get<events::AttemptEnded>(test::entry(ended).event));
}

TEST(NodeRecord, ANodesFaultIsRememberedOnce) {
  const json ended = {{"event", "attempt_ended"},
                      {"blamed", true},
                      {"blame", "node"},
                      {"node", "n1"},
                      {"cause", "gpu"},
                      {"unix", 100.0},
                      {"evidence", {"NVRM: Xid (PCI:0000:3b:00): 79, off the bus", "more"}}};
  const auto entry = ledger_entry(test::entry(ended), "7.0");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->node, "n1");
  EXPECT_EQ(entry->job, "7.0");
  EXPECT_EQ(entry->cause, "gpu");
  EXPECT_EQ(entry->xid, 79);
  EXPECT_TRUE(entry->hardware);
  auto claimed = ended;
  claimed["blame"] = "claim";
  EXPECT_FALSE(ledger_entry(test::entry(claimed), "7.0")->hardware) << "only the program says so";
  EXPECT_EQ(admin_line_of(claimed), "");
  auto innocent = ended;
  innocent["blamed"] = false;
  EXPECT_FALSE(ledger_entry(test::entry(innocent), "7.0"));
  EXPECT_EQ(admin_line_of(innocent), "");
  // A node lost in training is named by the attempt, a lost spare only by this event.
  json lost = {{"event", "node_lost"}, {"node", "n2"}, {"slot", 3}, {"evidence", "no heartbeat"}};
  EXPECT_FALSE(ledger_entry(test::entry(lost), "7.0"));
  lost["slot"] = nullptr;
  EXPECT_EQ(ledger_entry(test::entry(lost), "7.0")->cause, "node lost");
  EXPECT_FALSE(ledger_entry(test::entry({{"event", "first_step"}}), "7.0"));
}

TEST(NodeRecord, TheAdministratorsLineCanBePasted) {
  const json ended = {{"event", "attempt_ended"}, {"blamed", true},
                      {"blame", "node"},          {"node", "n1"},
                      {"cause", "gpu"},           {"evidence", {"it's\n\"gone\" $(rm -r /)"}}};
  EXPECT_EQ(admin_line_of(ended),
            "scontrol update nodename=n1 state=drain 'reason=holdfast: gpu: it s \"gone\" $(rm -r /)'");
}

TEST(Clock, IsLookedAtSeldomUntilTheEndIsNear) {
  EXPECT_EQ(next_query_s({}, 120, false), 300);
  EXPECT_EQ(next_query_s({}, 120, true), 30);
  EXPECT_EQ(next_query_s(86400, 120, false), 300);
  EXPECT_EQ(next_query_s(200, 120, true), 30);
  EXPECT_EQ(next_query_s(130, 120, true), 10);
  EXPECT_EQ(next_query_s(120, 120, true), 0);
  // The script's signal comes at 120 s or before, so it comes first.
  EXPECT_EQ(next_query_s(120, 120, false), 15);
  EXPECT_EQ(next_query_s(105, 120, false), 0);
  EXPECT_EQ(next_query_s(105.5, 120, false), 1);
}

TEST(Inject, KnowsItsFaults) {
  EXPECT_TRUE(agent_fault_called("kill_rank")->at_rank);
  EXPECT_EQ(agent_fault_called("stop_rank")->signal, SIGSTOP);
  EXPECT_EQ(agent_fault_called("xid_79")->sign->code, 79);
  EXPECT_EQ(agent_fault_called("oom_rank")->sign->kind, "oom_kill");
  EXPECT_FALSE(agent_fault_called("kill_node")->at_rank);
  EXPECT_FALSE(agent_fault_called("segfault")) << "a rank's own";
}

class SweepTest : public testing::Test {
 protected:
  SweepTest() {
    for (const auto* run : {&own, &dead, &living})
      std::ofstream(run->scratch.folder / flight_record_file(2, 0)) << "x";
  }
  ~SweepTest() override {
    for (const auto* run : {&own, &dead, &living}) {
      files::fs::remove_all(run->scratch.folder);
      files::fs::remove_all(run->local_level);
    }
  }
  struct OnNode {
    RunDir run;
    control::Key secret = control::random_key();
    Scratch scratch{control::make_private(control::scratch_place(run), secret), "n1"};
    files::fs::path local_level = control::make_private(control::local_level_place(run, "auto"), secret);
  };
  static bool all_there(const OnNode& run) {
    return exists(run.local_level) && exists(run.scratch.folder / flight_record_file(2, 0));
  }
  static bool nothing_there(const OnNode& run) {
    return !exists(run.scratch.folder) && !exists(run.local_level);
  }
  static files::Fd claim(const OnNode& run) { return claim_scratch(run.scratch, run.run, run.local_level); }
  control::test::Folder folder;
  OnNode own{.run = {folder.path / "own"}}, dead{.run = {folder.path / "dead"}},
      living{.run = {folder.path / "living"}};
};

TEST_F(SweepTest, WhatADeadRunLeftGoesAndNothingElse) {
  (void)claim(own);  // a claim of an agent that is gone
  (void)claim(dead);
  const auto agent = claim(living);
  sweep_node(own.scratch);
  EXPECT_TRUE(all_there(own)) << "its state is wanted";
  EXPECT_TRUE(all_there(living));
  EXPECT_TRUE(nothing_there(dead));
}

TEST_F(SweepTest, AsLongAsAProcessOfTheRunLivesNothingGoes) {
  (void)claim(dead);
  Command rank;
  rank.argv = {"sleep", "100"};
  rank.environment = {"PATH=/usr/bin:/bin", "HOLDFAST_RUN_DIR=" + dead.run.path.string()};
  const pid_t pid = spawn(rank);
  sweep_node(own.scratch);
  EXPECT_TRUE(all_there(dead));
  ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  sweep_node(own.scratch);
  EXPECT_TRUE(nothing_there(dead));
}

TEST_F(SweepTest, WhatOthersMayHavePutThereIsLeftAlone) {
  const Scratch& scratch = dead.scratch;
  ASSERT_EQ(::mkfifo(scratch.claim().c_str(), 0600), 0);
  sweep_node(own.scratch);  // a FIFO without a writer would hold it up for ever
  EXPECT_TRUE(all_there(dead));
  files::fs::remove(scratch.claim());
  (void)claim(dead);
  files::fs::permissions(scratch.folder, files::fs::perms(0770));
  sweep_node(own.scratch);
  EXPECT_TRUE(all_there(dead)) << "a folder that is open to others";
  files::fs::permissions(scratch.folder, files::fs::perms(0700));
  const auto target = scratch.folder / "elsewhere";
  files::fs::rename(scratch.claim(), target);
  files::fs::create_symlink(target, scratch.claim());
  sweep_node(own.scratch);
  EXPECT_TRUE(all_there(dead)) << "a link";
}

TEST_F(SweepTest, NoFolderGoesThatIsNotCalledAsALocalLevelIs) {
  const auto precious = folder.path / "precious";
  files::make_private_folder(precious);
  (void)claim_scratch(dead.scratch, dead.run, precious);
  sweep_node(own.scratch);
  EXPECT_FALSE(exists(dead.scratch.folder));
  EXPECT_TRUE(exists(precious));
}

TEST_F(SweepTest, WithoutAClaimNothingIsKnownAndNothingGoes) {
  sweep_node(own.scratch);
  EXPECT_TRUE(all_there(dead));
}

}  // namespace
}  // namespace holdfast::launcher

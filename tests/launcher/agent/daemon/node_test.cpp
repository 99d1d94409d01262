// The agent's ranks on its node: how they are started, watched, found again, and ended.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launcher/agent/daemon/linux_node.hpp"
#include "launcher/agent/leader/election.hpp"
#include "launcher/agent/ranks/local_ranks.hpp"
#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "tests/control/by_hand.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/launcher/golden.hpp"

namespace holdfast::launcher {
namespace {

using control::test::FakeChannel;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

// Starting.

TEST(RankStart, EnvironmentBelongsToNoOtherLauncher) {
  for (const char* name : {"SLURM_JOBID",
                           "SLURM_NTASKS",
                           "SLURM_STEP_NODELIST",
                           "SLURM_JOB_NODELIST",
                           "SLURM_PROCID",
                           "PMI_RANK",
                           "PMIX_RANK",
                           "PMIX_NAMESPACE",
                           "PMIX_SERVER_URI3",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_UNIVERSE_SIZE",
                           "OMPI_MCA_ess_base_jobid",
                           "OMPI_MCA_orte_hnp_uri",
                           "HOLDFAST_RANK",
                           "HOLDFAST_LOCAL_RANK",
                           "HOLDFAST_KEY_FILE",
                           "RANK",
                           "LOCAL_RANK",
                           "MASTER_PORT",
                           "TORCHELASTIC_RUN_ID"})
    env::set(name, "of another");
  for (const char* name :
       {"OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_include", "PMIX_MCA_gds", "UCX_TLS", "MY_OWN", "HOLDFAST_LOG"})
    env::set(name, "kept");
  env::set("SLURM_JOB_ID", "of the step");
  env::set("HOLDFAST_ATTEMPT", "1");
  env::set("NCCL_DEBUG", "of the node");
  config::ClusterFacts cluster;
  cluster.cpus_per_node = 64;
  cluster.environment = {"NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5"};
  config::Rank rank;
  rank.environment = {"NCCL_DEBUG=INFO", "HOLDFAST_ATTEMPT=99"};
  control::StartRanks order;
  order.term = 2;
  order.attempt = 3;
  order.ranks_per_node = 8;
  const auto environment =
      attempt_environment(RunDir{"/runs/a"}, "dgx002", order, cluster, rank, {"SLURM_JOB_ID=17"});
  for (const char* prefix : {"SLURM_JOBID",        "SLURM_NTASKS",   "SLURM_STEP",
                             "SLURM_JOB_NODELIST", "SLURM_PROCID",   "PMI_",
                             "PMIX_RANK",          "PMIX_NAMESPACE", "PMIX_SERVER",
                             "OMPI_COMM",          "OMPI_UNIVERSE",  "OMPI_MCA_ess",
                             "OMPI_MCA_orte",      "HOLDFAST_RANK=", "HOLDFAST_LOCAL_RANK=",
                             "HOLDFAST_KEY_FILE=", "RANK=",          "LOCAL_RANK=",
                             "MASTER_PORT=",       "TORCHELASTIC_"})
    EXPECT_THAT(environment, Not(Contains(StartsWith(prefix))));
  for (const char* entry :
       {"OMPI_MCA_btl=kept", "OMPI_MCA_btl_tcp_if_include=kept", "PMIX_MCA_gds=kept", "UCX_TLS=kept",
        "MY_OWN=kept", "HOLDFAST_LOG=kept", "NCCL_DEBUG=INFO", "NCCL_IB_HCA=mlx5", "HOLDFAST_RUN_DIR=/runs/a",
        "HOLDFAST_NODE=dgx002", "HOLDFAST_ATTEMPT=3", "SLURM_JOB_ID=17"})
    EXPECT_THAT(environment, Contains(entry).Times(1));
  EXPECT_THAT(environment, Contains(StartsWith("NCCL_DEBUG=")).Times(1)) << "the user's word is the last";
  EXPECT_THAT(environment, Contains(StartsWith("HOLDFAST_ATTEMPT=")).Times(1));
  if (!env::get("OMP_NUM_THREADS")) {
    EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=8"));
  }
}

TEST(RankStart, ProgramsOfOnesOwnCanImportTheClient) {
  const auto python_path = [](const config::Rank& rank) -> std::string {
    control::StartRanks order;
    order.ranks_per_node = 8;
    const auto environment = attempt_environment(RunDir{"/runs/a"}, "n1", order, {}, rank, {});
    std::string found = "none";
    for (const auto& entry : environment) {
      EXPECT_THAT(entry, Not(StartsWith("HOLDFAST_PYTHON=")));
      if (!entry.starts_with("PYTHONPATH=")) continue;
      EXPECT_EQ(found, "none") << "it stands there once";
      found = entry.substr(entry.find('=') + 1);
    }
    return found;
  };
  const auto before = env::get("PYTHONPATH");
  env::set("PYTHONPATH", "");
  config::Rank rank;
  rank.command = {"python3", "train.py"};
  EXPECT_EQ(python_path(rank), "") << "no package was found";
  env::set("HOLDFAST_PYTHON", "/opt/holdfast/share/holdfast/python");
  EXPECT_EQ(python_path(rank), "/opt/holdfast/share/holdfast/python");
  env::set("PYTHONPATH", "/site:");
  EXPECT_EQ(python_path(rank), "/site::/opt/holdfast/share/holdfast/python") << "the user's come first";
  rank.environment = {"PYTHONPATH=/mine"};
  EXPECT_EQ(python_path(rank), "/mine:/opt/holdfast/share/holdfast/python");
  rank = {};
  EXPECT_EQ(python_path(rank), "/site:") << "our trainer has no Python";
  env::set("HOLDFAST_PYTHON", "");
  env::set("PYTHONPATH", before.value_or(""));
}

TEST(RankStart, LogsOfAnAttempt) {
  EXPECT_EQ(rank_log(RunDir{"/runs/a"}, 3, 17), "/runs/a/logs/attempt-0003/rank-00017.log");
  EXPECT_EQ(attempt_logs(RunDir{"/runs/a"}, 12345), "/runs/a/logs/attempt-12345");
}

TEST(ScratchFolder, IsRemovedByTheLastAgentInIt) {
  const control::test::Folder folder;
  const Scratch one{folder.path / "scratch", "n1"}, ten{one.folder, "n10"};
  files::make_private_folder(one.folder);
  for (const auto& path : {one.socket(), ten.socket(), one.pmix(1), ten.pmix(2), one.key(3), ten.key(3)})
    files::replace_atomically(path, "");
  EXPECT_FALSE(remove_scratch(one)) << "another agent lives here";
  EXPECT_FALSE(exists(one.socket()));
  EXPECT_FALSE(exists(one.pmix(1)) || exists(one.key(3)));
  EXPECT_TRUE(exists(ten.socket()));
  EXPECT_TRUE(exists(ten.pmix(2)) && exists(ten.key(3)));
  EXPECT_TRUE(remove_scratch(ten));
  EXPECT_FALSE(exists(ten.folder));
  remove_scratch(ten);  // nothing to do
}

TEST(RankRecords, TellTheNextAgentWhatTheLastOneStartedAndTheGuardianHowItEnded) {
  const control::test::Folder folder;
  const Scratch one{folder.path / "scratch", "n1"}, other{one.folder, "n10"};
  files::make_private_folder(one.folder);
  EXPECT_TRUE(rank_records(one).empty());
  keep_rank_record(one, {3, 1, 1000, {}}), keep_rank_record(one, {4, 1, 1001, {}});
  keep_rank_record(other, {5, 1, 1002, {}});
  keep_rank_end(one, 1001, 143);
  keep_rank_end(one, 999, 7);  // no rank
  const auto records = rank_records(one);
  ASSERT_EQ(records.size(), 2u) << "n10 is another node";
  EXPECT_EQ(records[0].rank, 3);
  EXPECT_EQ(records[0].attempt, 1);
  EXPECT_EQ(records[0].pid, 1000);
  EXPECT_FALSE(records[0].status);
  EXPECT_EQ(records[1].status, 143);
  keep_rank_record(one, {4, 2, 1003, {}});
  EXPECT_FALSE(rank_records(one)[1].status) << "the end of an earlier attempt's";
  keep_final_state(one, {0, 1, control::FinalState{40, 4000, 2.5, "00000000000000ab"}});
  for (const auto& record : rank_records(one)) {
    const bool is_its_own = record.rank == 0 && record.attempt == 1;
    ASSERT_EQ(record.finished.has_value(), is_its_own) << record.rank;
    if (!is_its_own) continue;
    EXPECT_EQ(record.finished->state->state_digest, "00000000000000ab");
  }
  remove_rank_records(one);
  EXPECT_TRUE(rank_records(one).empty());
  keep_rank_record(one, {3, 2, 1004, {}}), keep_rank_end(one, 1004, 0);
  EXPECT_TRUE(remove_scratch(one));
  EXPECT_FALSE(exists(one.folder / "rank-n1-3") || exists(one.folder / "end-n1-3"));
  EXPECT_EQ(rank_records(other).size(), 1u);
  EXPECT_TRUE(remove_scratch(other));
  EXPECT_FALSE(exists(one.folder));
}

// Finding and ending older processes.

class OldProcesses : public testing::Test {
 protected:
  ~OldProcesses() override {
    for (const pid_t pid : started_) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
  pid_t sleeper(std::vector<std::string> environment, bool new_session = false) {
    environment.push_back("PATH=/usr/bin:/bin");
    Command command;
    command.argv = {"sleep", "100"};
    command.environment = std::move(environment);
    command.new_session = new_session;
    started_.push_back(spawn(command));
    return started_.back();
  }
  bool lives(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == 0; }
  /// The signal that ended it; 0: none, for seconds.
  int ended_by(pid_t pid) {
    for (const auto deadline = Deadline::in(5s); !deadline.passed(); std::this_thread::sleep_for(1ms)) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) != pid) continue;
      std::erase(started_, pid);
      return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    return 0;
  }
  control::test::Folder folder_;
  RunDir run_{folder_.path};
  control::RealLoop loop_;
  LinuxNode node_{loop_,
                  run_,
                  Scratch{folder_.path, "n1"},
                  "",
                  0,
                  config::RunConfig(),
                  config::ClusterFacts(),
                  Roster(),
                  control::Key()};
  std::vector<pid_t> started_;
};

TEST_F(OldProcesses, AreFoundBeforeTheyHaveBecomeTheirPrograms) {
  const auto pipe = folder_.path / "output";  // opening it waits for a reader
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Command command;
  command.argv = {"/bin/sleep", "100"};
  command.environment = {"HOLDFAST_RUN_DIR=" + run_.path.string(), "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=3",
                         "HOLDFAST_RANK=12"};
  command.output = pipe;
  const pid_t pid = node_.start(command, {[](int) {}});
  started_.push_back(pid);
  EXPECT_THAT(processes_of(run_, "n1"), testing::IsEmpty()) << "its environment is still this process's";
  const auto found = node_.processes(false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, pid);
  EXPECT_EQ(found[0].attempt, 3);
  EXPECT_EQ(found[0].rank, 12);
  EXPECT_EQ(kill_older(node_, 4, SIGKILL, SIGKILL, false).size(), 1u);
  EXPECT_EQ(ended_by(pid), SIGKILL);
}

TEST_F(OldProcesses, AreFoundByTheirEnvironmentAndEnded) {
  const std::string dir = "HOLDFAST_RUN_DIR=" + run_.path.string();
  const pid_t first = sleeper({dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=1"});
  const pid_t second = sleeper({"HOLDFAST_ATTEMPT=2", "HOLDFAST_NODE=n1", dir});
  const pid_t third = sleeper({dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=3", "HOLDFAST_RANK=12"});
  const pid_t elsewhere = sleeper({dir, "HOLDFAST_NODE=n10", "HOLDFAST_ATTEMPT=1"});
  const pid_t other_run = sleeper({dir + "x", "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=1"});
  const pid_t no_attempt = sleeper({dir, "HOLDFAST_NODE=n1"});
  const pid_t nested =
      sleeper({"X=" + dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=1", "MY_HOLDFAST_ATTEMPT=1"});
  const auto found = processes_of(run_, "n1");
  std::map<int, int> attempts;
  for (const auto& p : found) {
    attempts[p.pid] = p.attempt;
    EXPECT_EQ(p.name, "sleep");
    EXPECT_EQ(p.rank, p.pid == third ? 12 : -1);
    EXPECT_EQ(parent_of(p.pid), ::getpid());
  }
  EXPECT_EQ(parent_of(0), -1);
  EXPECT_EQ(attempts, (std::map<int, int>{{first, 1}, {second, 2}, {third, 3}}));

  EXPECT_TRUE(kill_older(node_, 1, SIGKILL, SIGKILL, false).empty()) << "nothing is older than the first";
  EXPECT_EQ(kill_older(node_, 3, SIGKILL, SIGKILL, false).size(), 2u);
  EXPECT_EQ(ended_by(first), SIGKILL);
  EXPECT_EQ(ended_by(second), SIGKILL);
  EXPECT_TRUE(kill_older(node_, 3, SIGKILL, SIGKILL, false).empty()) << "they are gone";
  for (const pid_t pid : {third, elsewhere, other_run, no_attempt, nested}) EXPECT_TRUE(lives(pid)) << pid;
  EXPECT_EQ(kill_older(node_, INT32_MAX, SIGTERM, SIGTERM, false).size(), 1u);
  EXPECT_EQ(ended_by(third), SIGTERM);
}

TEST_F(OldProcesses, WithWhatTheyHaveStarted) {
  const std::string dir = "HOLDFAST_RUN_DIR=" + run_.path.string();
  Command command;
  command.argv = {"/bin/sh", "-c", "env -i sleep 100 & wait"};
  command.environment = {
      {dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=1", "HOLDFAST_RANK=3", "PATH=/usr/bin:/bin"}};
  started_.push_back(spawn(command));
  const pid_t stranger = sleeper({});
  std::vector<RunProcess> found;
  for (const auto deadline = Deadline::in(5s); found.size() < 2; found = processes_of(run_, "n1"))
    ASSERT_FALSE(deadline.passed());
  for (const auto& p : found) {
    EXPECT_EQ(p.attempt, 1);
    EXPECT_EQ(p.rank, 3);
  }
  const auto with_orphans = processes_of(run_, "n1", ::getpid());  // as if this were the guardian
  ASSERT_EQ(with_orphans.size(), 3u);
  for (const auto& p : with_orphans) EXPECT_EQ(p.attempt, p.pid == stranger ? 0 : 1);
  EXPECT_EQ(kill_older(node_, 2, SIGKILL, SIGKILL, false).size(), 2u);
  for (const auto deadline = Deadline::in(5s); !processes_of(run_, "n1").empty();)
    ASSERT_FALSE(deadline.passed());
  EXPECT_TRUE(lives(stranger));
}

TEST_F(OldProcesses, WhatAnInterpreterLeftThatWaitedOnceIsOlderThanAnyAttempt) {
  const std::vector<std::string> waiting = {"HOLDFAST_RUN_DIR=" + run_.path.string(), "HOLDFAST_NODE=n1",
                                            "HOLDFAST_ATTEMPT=2147483646", "PATH=/usr/bin:/bin"};
  Command command;
  command.argv = {"/bin/sh", "-c", "sleep 100 & exit 0"};
  command.environment = waiting;
  command.new_session = true;
  ASSERT_GT(::waitpid(spawn(command), nullptr, 0), 0);
  const pid_t waits = sleeper(waiting, true);
  std::vector<RunProcess> found;
  for (const auto deadline = Deadline::in(5s); found.size() < 2; found = processes_of(run_, "n1"))
    ASSERT_FALSE(deadline.passed());
  for (const auto& p : found) EXPECT_EQ(p.attempt, p.pid == waits ? waiting_attempt : 0);
  EXPECT_EQ(kill_older(node_, 1, SIGKILL, SIGKILL, false).size(), 1u);
  EXPECT_TRUE(lives(waits));
}

/// A module that is imported while an interpreter waits may start processes.
TEST_F(OldProcesses, WhatAnInterpreterStartedWhileItWaitedBelongsToTheRankThatItIsNow) {
  const std::string dir = "HOLDFAST_RUN_DIR=" + run_.path.string();
  Command command;
  command.argv = {"/bin/sh", "-c", "HOLDFAST_ATTEMPT=2 HOLDFAST_RANK=5 sleep 100 & wait"};
  command.environment = {
      {dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=2147483646", "HOLDFAST_RANK=-1", "PATH=/usr/bin:/bin"}};
  command.new_session = true;
  started_.push_back(spawn(command));
  const pid_t waits = sleeper({dir, "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=2147483646"}, true);
  std::vector<RunProcess> found;
  const auto is_rank = [](const RunProcess& p) { return p.attempt == 2; };  // its environment comes with exec
  for (const auto deadline = Deadline::in(5s); std::ranges::none_of(found, is_rank);
       found = processes_of(run_, "n1"))
    ASSERT_FALSE(deadline.passed());
  ASSERT_EQ(found.size(), 3u);
  for (const auto& p : found) EXPECT_EQ(p.attempt, p.pid == waits ? waiting_attempt : 2) << p.pid;
  EXPECT_EQ(kill_older(node_, 3, SIGKILL, SIGKILL, false).size(), 2u);
  EXPECT_TRUE(lives(waits));
}

TEST_F(OldProcesses, ADeadOneThatNobodyHasWaitedForIsGone) {
  const pid_t pid =
      sleeper({"HOLDFAST_RUN_DIR=" + run_.path.string(), "HOLDFAST_NODE=n1", "HOLDFAST_ATTEMPT=1"});
  EXPECT_EQ(kill_older(node_, 2, SIGKILL, SIGKILL, false).size(), 1u);
  for (const auto deadline = Deadline::in(5s); !kill_older(node_, 2, SIGKILL, SIGKILL, false).empty();)
    ASSERT_FALSE(deadline.passed());
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), pid) << "it was a zombie all the while";
  started_.clear();
}

// Watching.

class ChildrenTest : public testing::Test {
 protected:
  std::optional<int> status_of(const std::string& script) {
    std::optional<int> out;
    loop.call([&] {
      children.start({{"/bin/sh", "-c", script}, {}, {}, {}, false}, {[&](int status) { out = status; }});
    });
    loop.until([&] { return out.has_value(); });
    return out;
  }
  ~ChildrenTest() override { loop.end(); }
  control::test::LoopThread loop;
  Children children{loop.loop};
};

TEST_F(ChildrenTest, ExitCodeOrSignal) {
  EXPECT_EQ(status_of("exit 0"), 0);
  EXPECT_EQ(status_of("exit 7"), 7);
  EXPECT_EQ(status_of("kill -9 $$"), 137);
  EXPECT_EQ(status_of("kill -TERM $$"), 143);
}

TEST_F(ChildrenTest, AProgramThatCannotBeStarted) {
  std::string why;
  loop.call([&] {
    children.start(
        {{"/no/such/program"}, {}, {}, {}, false},
        {[](int) { ADD_FAILURE(); }, [&](const Error& error) { why = error.what(); }, [] { ADD_FAILURE(); }});
  });
  ASSERT_TRUE(loop.until([&] { return !why.empty(); }));
  EXPECT_THAT(why, testing::HasSubstr("cannot start /no/such/program (No such file"));
}

TEST_F(ChildrenTest, TheLoopDoesNotWaitForAProcessThatWaitsForStorage) {
  const control::test::Folder folder;
  const auto pipe = folder.path / "output";  // opening it waits for a reader
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Command command;
  command.argv = {"/bin/sh", "-c", "exit 7"};
  command.output = pipe;
  pid_t first = 0, second = 0;
  std::vector<std::string> heard;
  const auto hooks = [&](const std::string& name) {
    return ChildHooks{[&heard, name](int status) { heard.push_back(name + " " + std::to_string(status)); },
                      [](const Error&) { ADD_FAILURE(); }, [&heard, name] { heard.push_back(name); }};
  };
  loop.call([&] { first = children.start(command, hooks("first")); });
  loop.settle();
  EXPECT_TRUE(loop.call([&] { return heard.empty() && children.begins(first) && children.awaits(first); }));
  ::kill(first, SIGKILL);
  ASSERT_TRUE(loop.until([&] { return heard.size() == 2; }));
  EXPECT_THAT(loop.call([&] { return std::exchange(heard, {}); }), ElementsAre("first", "first 137"));
  loop.call([&] { second = children.start(command, hooks("second")); });
  const files::Fd reader(::open(pipe.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(loop.until([&] { return heard.size() == 2; }));
  EXPECT_THAT(loop.call([&] { return heard; }), ElementsAre("second", "second 7"));
  EXPECT_FALSE(loop.call([&] { return children.begins(second) || children.awaits(second); }));
}

TEST_F(ChildrenTest, ManyAtOnce) {
  std::map<int, int> ended;
  loop.call([&] {
    for (int i = 0; i < 30; ++i)
      children.start({{"/bin/sh", "-c", "exit " + std::to_string(i)}, {}, {}, {}, false},
                     {[&ended, i](int status) { ended[i] = status; }});
  });
  ASSERT_TRUE(loop.until([&] { return ended.size() == 30; }));
  for (const auto& [i, status] : ended) EXPECT_EQ(status, i);
}

TEST_F(ChildrenTest, ProcessesOfOthers) {
  const pid_t pid = spawn({{"/bin/sleep", "100"}, {}, {}, {}, false});
  int ended = 0;
  loop.call([&] {
    children.watch(pid, [&] { ++ended; });
    children.watch(pid, [&] { ended += 100; });  // it is watched already
  });
  loop.settle();
  EXPECT_EQ(loop.call([&] { return ended; }), 0);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(loop.until([&] { return ended == 1; }));
  ::waitpid(pid, nullptr, 0);
  loop.call([&] { children.watch(pid, [&] { ++ended; }); });
  EXPECT_TRUE(loop.until([&] { return ended == 2; })) << "it had gone before";
}

// Remembering.

TEST(LocalRanks, StateMessagesForANewLeader) {
  LocalRanks ranks;
  EXPECT_TRUE(ranks.state_messages().empty());
  auto& r = ranks.at(4, 2);
  r.started = true;
  r.pid = 77;
  r.restored = control::RankRestored{4, 2, {10, "shared", "", ""}};
  r.failed = control::RankFailed{4, 2, 1, "why"};
  r.exited = control::RankExited{4, 2, 1};
  ranks.at(5, 2);  // has not started yet
  std::vector<std::string> kinds;
  for (const auto& message : ranks.state_messages()) kinds.push_back(std::to_string(message.index()));
  const auto kind = [](const control::Message& m) { return std::to_string(m.index()); };
  EXPECT_THAT(kinds, ElementsAre(kind(control::RankStarted{}), kind(control::RankRestored{}),
                                 kind(control::RankFailed{}), kind(control::RankExited{})));
  EXPECT_EQ(ranks.living(2), 2u);
  EXPECT_EQ(ranks.live(2).size(), 1u);
  EXPECT_TRUE(ranks.live(1).empty());
  r.ended = true;
  EXPECT_EQ(ranks.living(2), 1u);
  EXPECT_TRUE(ranks.live(2).empty());
}

TEST(LocalRanks, NewerAttemptsReplaceOlderOnes) {
  LocalRanks ranks;
  ranks.at(1, 1).started = true;
  ranks.at(2, 1).started = true;
  EXPECT_TRUE(ranks.at(1, 1).started) << "the same entry";
  EXPECT_FALSE(ranks.at(1, 2).started);
  EXPECT_EQ(ranks.at(1, 2).progress.attempt, 2);
  EXPECT_EQ(ranks.find(1, 1), nullptr);
  ASSERT_NE(ranks.find(2, 1), nullptr);
  ranks.forget_older(2);
  EXPECT_EQ(ranks.find(2, 1), nullptr);
  EXPECT_NE(ranks.find(1, 2), nullptr);
}

TEST(LocalRanks, AMessageReachesTheConnectedRanksOfAnAttempt) {
  LocalRanks ranks;
  std::vector<std::shared_ptr<FakeChannel>> links;
  for (int rank = 0; rank < 3; ++rank) {
    links.push_back(std::make_shared<FakeChannel>());
    auto& r = ranks.at(rank, rank == 2 ? 1 : 2);
    r.link = links.back();
  }
  links[1]->is_open = false;
  ranks.tell(control::CommitOutcome{2, 20, true, ""}, 2);
  EXPECT_EQ(links[0]->sent.size(), 1u);
  EXPECT_TRUE(links[1]->sent.empty()) << "a broken link; the rank asks again";
  EXPECT_TRUE(links[2]->sent.empty()) << "another attempt";
}

TEST(Election, HalfOfTheAgentsAndNoObjection) {
  EXPECT_TRUE(enough(1, 0, 1));
  EXPECT_TRUE(enough(1, 0, 2));
  EXPECT_FALSE(enough(1, 0, 3));
  EXPECT_TRUE(enough(64, 0, 127));
  EXPECT_FALSE(enough(63, 0, 127));
  EXPECT_FALSE(enough(126, 1, 127)) << "somebody hears a leader";
  EXPECT_FALSE(enough(0, 0, 1));
}

}  // namespace
}  // namespace holdfast::launcher

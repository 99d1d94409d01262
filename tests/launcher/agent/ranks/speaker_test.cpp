// Of the processes that have a rank's key, which one is heard.
#include "launcher/agent/ranks/speaker.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "launcher/agent/ranks/run_processes.hpp"

namespace holdfast::launcher {
namespace {

/// The agent is 10; it has started the script 20, that the program 30, and that its workers 40 and 50, the
/// second one through a server 45. 60 is beside the program.
class Speaker : public testing::Test {
 protected:
  std::map<pid_t, ProcessFacts> table{{10, {1, 1}},  {20, {10, 2}}, {30, {20, 3}}, {40, {30, 4}},
                                      {45, {30, 5}}, {50, {45, 6}}, {60, {20, 7}}};
  ProcessId id(pid_t pid) const { return {pid, table.at(pid).started}; }
  Claim claims(const ProcessId& opener, std::optional<ProcessId> speaker, bool connected = true) const {
    return claim(opener, speaker, connected, [this](pid_t pid) {
      const auto found = table.find(pid);
      return found == table.end() ? std::nullopt : std::optional(found->second);
    });
  }
};

TEST_F(Speaker, TheFirstToOpenSpeaksAndMayConnectAgain) {
  EXPECT_EQ(claims(id(30), std::nullopt), Claim::speaks);
  EXPECT_EQ(claims(id(30), id(30)), Claim::speaks);
}

TEST_F(Speaker, AChildDoesNot) {
  EXPECT_EQ(claims(id(40), id(30)), Claim::child);
  EXPECT_EQ(claims(id(50), id(30)), Claim::child) << "of a server of workers";
  EXPECT_EQ(claims(id(40), id(30), false), Claim::child) << "the agent may have been replaced";
  EXPECT_EQ(claims(id(60), id(30)), Claim::other);
  EXPECT_EQ(claims({70, 9}, id(30)), Claim::other) << "it has ended already";
}

TEST_F(Speaker, AParentTakesOverFromTheChildThatOpenedFirst) {
  EXPECT_EQ(claims(id(30), id(50)), Claim::speaks);
  EXPECT_EQ(claims(id(20), id(30)), Claim::speaks);
}

TEST_F(Speaker, OneThatHasEndedIsFollowedByAnother) {
  const ProcessId before = id(30);
  table[30].started = 99;
  EXPECT_EQ(claims(id(60), before), Claim::speaks) << "another process has its number";
  table.erase(30);
  EXPECT_EQ(claims(id(60), before), Claim::speaks);
}

TEST_F(Speaker, WhatCannotBeSeenIsJudgedByItsConnection) {
  EXPECT_EQ(claims({-7, 0}, ProcessId{-7, 0}), Claim::speaks);
  EXPECT_EQ(claims({-8, 0}, ProcessId{-7, 0}), Claim::other);
  EXPECT_EQ(claims({-8, 0}, ProcessId{-7, 0}, false), Claim::speaks);
  EXPECT_EQ(claims({-8, 0}, id(30)), Claim::other);
}

TEST(ProcessFacts, WhateverTheNameIs) {
  const auto here = process_facts(::getpid());
  ASSERT_TRUE(here);
  EXPECT_EQ(here->parent, ::getppid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) R 1 (b");
    ::pause();
    ::_exit(0);
  }
  for (int i = 0; i < 1000 && process_facts(child)->started == 0; ++i) ::usleep(1000);
  const auto named = process_facts(child);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->parent, ::getpid());
  EXPECT_GE(named->started, here->started);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(process_facts(child)) << "it has ended, though nobody has waited for it";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_facts(child));
}

}  // namespace
}  // namespace holdfast::launcher

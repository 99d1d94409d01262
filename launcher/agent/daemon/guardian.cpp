#include "launcher/agent/daemon/guardian.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <deque>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/subprocess.hpp"

namespace holdfast::launcher {
namespace {

constexpr int restarts_per_minute = 10;
volatile pid_t serving = 0;

void pass_on(int signal, siginfo_t* from, void*) {
  const bool slurms = signal == SIGTERM && from->si_pid == ::getppid();  // from slurmstepd
  if (serving > 0) ::kill(serving, slurms ? slurms_sigterm() : signal);
}

/// Records how a process ended, for the next agent.
void record_orphan(const Scratch& scratch, pid_t pid, int status) {
  try {
    keep_rank_end(scratch, pid, exit_status(status));
  } catch (const Error& error) {
    log::warn("the end of process {} cannot be recorded: {}", pid, error.what());
  }
}

}  // namespace

int guard(const RunDir& run, const std::string& node) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCONT}) {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    ::sigaction(signal, &action, nullptr);
  }
  // The lock is held between two agents too.
  const Scratch scratch = scratch_of(run, node);
  make_scratch(scratch);
  const files::Fd claim = hold_scratch(scratch);
  remove_rank_records(scratch);
  std::deque<Clock::time_point> starts;
  for (;;) {
    serving = spawn({{this_program().string(), "agent", run.path.string(), "--node", node, "--serve"},
                     {},
                     {},
                     {},
                     false});
    starts.push_back(Clock::now());
    int status = 0;
    for (pid_t ended = 0; ended != serving;) {  // orphans of earlier agents are reaped here too
      ended = ::waitpid(-1, &status, 0);
      if (ended < 0 && errno != EINTR) throw system_error("cannot wait for the agent", errno);
      if (ended > 0 && ended != serving) record_orphan(scratch, ended, status);
    }
    serving = 0;
    if (!WIFSIGNALED(status)) return exit_status(status);
    while (!starts.empty() && Clock::now() - starts.front() > std::chrono::minutes(1)) starts.pop_front();
    if (static_cast<int>(starts.size()) >= restarts_per_minute)
      throw Error(Exit::runtime, "the agent has died too often",
                  "signal " + std::to_string(WTERMSIG(status)) + ", ten times in a minute");
    log::warn("the agent was ended by signal {}; starting another", WTERMSIG(status));
  }
}

void die_with_guardian() {
  const pid_t guardian = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guardian) ::raise(SIGKILL);
}

}  // namespace holdfast::launcher

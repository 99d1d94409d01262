// The guardian of an agent, from top to bottom of guard():
//
// 1. It passes signals on, adopts orphans of the node, and claims the node and its scratch folder.
// 2. It goes on as the copy of this program in the memory of the node, beside copies of the settings, and
//    logs to memory. From here on it needs no shared storage.
// 3. It starts the serving agent. Every half second it waits for what has ended, records how ranks of dead
//    agents have ended, and looks whether the agent's loop turns.
// 4. An agent that was ended by a signal, or by the guardian because its loop stood still, is replaced; the
//    next one finds the ranks. One that has ended by itself ends the guardian, with its exit code.
//
// It decides nothing about ranks, and opens no connection.
#include "launcher/agent/daemon/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <optional>

#include "launcher/agent/daemon/gpu_job_mapping.hpp"
#include "launcher/agent/daemon/loop_watch.hpp"
#include "launcher/agent/daemon/resident.hpp"
#include "launcher/agent/ranks/log_spool.hpp"
#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/ranks/run_processes.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/supervise/life_signs.hpp"
#include "slurm/job_env.hpp"
#include "slurm/tools.hpp"
#include "src/base/clock.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lock_pages.hpp"
#include "src/base/log.hpp"
#include "src/base/own_run.hpp"
#include "src/base/subprocess.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

constexpr int restarts_per_minute = 10;
constexpr Millis last_logs_limit{5000};  // for shared storage to take them
volatile pid_t serving = 0;
// Of this process, the nearest first: slurmstepd is one of them. Between the two an image's runtime may
// stand.
std::array<pid_t, 16> ancestors{};

void find_ancestors() {
  pid_t pid = ::getppid();
  for (pid_t& ancestor : ancestors) {
    ancestor = pid;
    pid = pid > 1 ? parent_of(pid) : 0;
  }
}

/// Records how a process ended, for the next agent.
void record_orphan(const Scratch& scratch, pid_t pid, int status) {
  try {
    keep_rank_end(scratch, pid, exit_status(status));
  } catch (const Error& error) {
    log::warn("the end of process {} cannot be recorded: {}", pid, error.what());
  }
}

int liveness() { return SIGRTMIN + 1; }

/// Waits until the process ends, and ends it when its loop stands still. Orphans of earlier agents are reaped
/// too. Returns its wait status.
int wait_for_agent(const Scratch& scratch, pid_t agent, const sigset_t& awaited) {
  LoopWatch watch(steady_seconds());
  for (;;) {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == agent) return status;
      record_orphan(scratch, ended, status);
    }
    siginfo_t what{};
    constexpr timespec pause{0, static_cast<long>(1e9 * LoopWatch::between_looks_s)};
    const int signal = ::sigtimedwait(&awaited, &what, &pause);
    const double now = steady_seconds();
    watch.looked(now);
    if (signal == liveness() && what.si_pid == agent) watch.told(what.si_value.sival_int != 0, now);
    if (!watch.stands_still(now)) continue;
    log::warn("the agent's loop has stood still for {} s: the agent is replaced", stuck_agent_s);
    ::kill(agent, SIGKILL);
    watch.told(true, now);
  }
}

/// 0 is who sends from outside of this process's pid namespace.
bool is_slurms(int signal, pid_t from) {
  return signal == SIGTERM &&
         (from == 0 || std::find(ancestors.begin(), ancestors.end(), from) != ancestors.end());
}

void pass_on(int signal, siginfo_t* from, void*) {
  if (serving > 0) ::kill(serving, is_slurms(signal, from->si_pid) ? slurms_sigterm() : signal);
}

/// Goes on as the copy of this program in the node's memory.
void run_resident(const Scratch& scratch, const RunDir& run) {
  const auto program = make_resident(scratch, run);
  if (program == this_program()) return;
  name_installed_program();
  const std::string dir = run.path.string();
  ::execl(program.c_str(), program.c_str(), "agent", dir.c_str(), "--node", scratch.node.c_str(), "--scratch",
          scratch.folder.c_str(), nullptr);
  throw system_error("cannot run " + program.string(), errno);
}

/// SLURM gave this step a file on shared storage for what it logs.
void log_to_memory(const Scratch& scratch, const RunDir& run) {
  struct stat info {};
  if (::fstat(STDERR_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return;
  const files::Fd log =
      files::open(spooled(scratch, run, agent_log(run, scratch.node)), O_WRONLY | O_CREAT | O_APPEND);
  ::dup2(log.get(), STDOUT_FILENO);
  ::dup2(log.get(), STDERR_FILENO);
}

/// What the last agent said reaches the run directory all the same.
void copy_last_logs(const Scratch& scratch, const RunDir& run) {
  control::RealLoop loop;
  LogSpool spool(loop, scratch, run);
  spool.copy();
  const auto done = loop.every(Millis(20), [&] {
    if (spool.empty()) loop.stop();
  });
  const auto limit = loop.after(last_logs_limit, [&] { loop.stop(); });
  loop.run();
}

/// As the cluster file says, for this step of the job.
std::optional<GpuJobMapping> map_gpus(const Scratch& scratch, const RunDir& run) {
  try {
    const auto facts = config::load_cluster(settings_of(scratch, run).cluster().string());
    if (facts.gpu_job_mapping.empty() || !slurm::inside_a_job()) return std::nullopt;
    const auto here = slurm::job_env();
    return std::optional<GpuJobMapping>(std::in_place, facts.gpu_job_mapping, std::to_string(here.job),
                                        here.gpus);
  } catch (const Error& error) {
    log::warn("dcgm-exporter will not know the job of the GPUs: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace

int guard(const RunDir& run, const Scratch& scratch) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  find_ancestors();
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCONT}) {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    ::sigaction(signal, &action, nullptr);
  }
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, liveness()}) sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, nullptr);
  files::make_private_folder(scratch.folder);
  // The locks are held between two agents too.
  const files::Fd claim = hold_scratch(scratch), alone = hold_node(scratch);
  const bool reaches_slurm = !slurm::inside_a_job() || slurm::find_tools();
  name_python_folder();
  run_resident(scratch, run);
  require_own_run(run);      // now that its settings are copied: somebody may have replaced it until then
  raise_descriptor_limit();  // here, as the limit lasts through run_resident()
  log_to_memory(scratch, run);
  if (!reaches_slurm)
    log::warn(
        "SLURM's tools are not in PATH here: nobody queues the job again or ends it when the batch host "
        "is lost, and of two agents the one that is left cannot lead");
  if (!lock_all_pages())
    log::info(
        "the limit of locked memory (ulimit -l) is not unlimited: the agent may wait for the node's swap "
        "space");
  remove_rank_records(scratch);
  std::error_code ignored;
  std::filesystem::remove(scratch.term(), ignored);  // of an earlier job, perhaps
  const auto gpu_job_mapping = map_gpus(scratch, run);
  std::deque<Clock::time_point> starts;
  for (;;) {
    Command agent;
    agent.argv = {this_program().string(), "agent",  run.path.string(), "--node", scratch.node, "--scratch",
                  scratch.folder.string(), "--serve"};
    agent.when_parent_ends = SIGKILL;
    const Launched process = launch(agent);
    serving = process.pid;
    starts.push_back(Clock::now());
    const int status = wait_for_agent(scratch, serving, awaited);
    serving = 0;
    if (!WIFSIGNALED(status)) {
      if (const auto why = why_not_run(process.report.get(), agent.argv[0])) throw Error(*why);
      if (status != 0) copy_last_logs(scratch, run);
      return exit_status(status);
    }
    while (!starts.empty() && Clock::now() - starts.front() > std::chrono::minutes(1)) starts.pop_front();
    if (static_cast<int>(starts.size()) >= restarts_per_minute)
      throw Error(Exit::runtime, "the agent has died too often",
                  "signal " + std::to_string(WTERMSIG(status)) + ", ten times in a minute");
    log::warn("the agent was ended by signal {}; starting another", WTERMSIG(status));
  }
}

void tell_guardian(pid_t guardian, bool over) {
  sigval value{};
  value.sival_int = over;
  ::sigqueue(guardian, liveness(), value);
}

}  // namespace holdfast::launcher

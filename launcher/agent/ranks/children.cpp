#include "launcher/agent/ranks/children.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

int pidfd_of(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)); }

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

/// Its exit code, or 128 + signal.
int Children::reap(pid_t pid) {
  int status = 0;
  pid_t waited = 0;
  rusage used{};
  do waited = ::wait4(pid, &status, 0, &used);
  while (waited < 0 && errno == EINTR);
  last_ended_ = waited;
  last_cpu_s_ = seconds(used.ru_utime) + seconds(used.ru_stime);
  return waited == pid ? exit_status(status) : -1;
}

void Children::watch_end(pid_t pid, int pidfd, std::function<void()> ended) {
  watched_[pid] = loop_.when_readable(pidfd, [this, pid, ended = std::move(ended)] {
    const auto keep = std::move(watched_[pid]);
    watched_.erase(pid);
    ended();
  });
}

pid_t Children::start(const Command& command, ChildHooks hooks) {
  Launched process = launch(command);
  const pid_t pid = process.pid;
  const auto end = std::make_shared<files::Fd>(pidfd_of(pid));
  if (!*end) {
    const int error = errno;
    ::kill(pid, SIGKILL);  // nobody would hear of its end, and it may wait for storage
    ::waitpid(pid, nullptr, WNOHANG);
    throw system_error("cannot create a process for " + command.argv[0], error);
  }
  beginning_.insert(pid);
  const int report = process.report.release();
  watched_[pid] = loop_.when_readable(
      report, [this, pid, report, end, program = command.argv[0], hooks = std::move(hooks)] {
        const auto keep = std::move(watched_[pid]);
        const auto why = why_not_run(report, program);
        beginning_.erase(pid);
        watch_end(pid, end->release(), [this, pid, why, hooks] {
          const int status = reap(pid);
          if (!why) return hooks.ended(status);
          if (hooks.failed) hooks.failed(*why);
        });
        if (!why && hooks.runs) hooks.runs();
      });
  return pid;
}

void Children::watch(pid_t pid, std::function<void()> ended) {
  if (watched_.contains(pid)) return;
  const int pidfd = pidfd_of(pid);
  if (pidfd < 0) return loop_.post(std::move(ended));
  watch_end(pid, pidfd, std::move(ended));
}

}  // namespace holdfast::launcher

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
double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}
}  // namespace

bool Children::open(pid_t pid, std::function<void()> ended) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u));
  if (fd < 0) return false;
  watched_[pid] = loop_.when_readable(fd, [this, pid, ended = std::move(ended)] {
    const auto keep = std::move(watched_[pid]);
    watched_.erase(pid);
    ended();
  });
  return true;
}

pid_t Children::start(const Command& command, std::function<void(int)> ended) {
  const pid_t pid = spawn(command);
  auto reap = [this, pid, ended] {
    int status = 0;
    pid_t waited = 0;
    rusage used{};
    do waited = ::wait4(pid, &status, 0, &used);
    while (waited < 0 && errno == EINTR);
    last_ended_ = waited;
    last_cpu_s_ = seconds(used.ru_utime) + seconds(used.ru_stime);
    ended(waited == pid ? exit_status(status) : -1);
  };
  if (open(pid, reap)) return pid;
  const int error = errno;
  ::kill(pid, SIGKILL);  // nobody would hear of its end
  ::waitpid(pid, nullptr, 0);
  throw system_error("cannot create a process for " + command.argv[0], error);
}

void Children::watch(pid_t pid, std::function<void()> ended) {
  if (watched_.contains(pid)) return;
  if (!open(pid, ended)) loop_.post(ended);
}

}  // namespace holdfast::launcher

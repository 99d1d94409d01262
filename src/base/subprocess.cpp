// A process is started by fork() and exec(). The parent may have threads, whose locks the child would find
// locked forever; so everything that needs memory (arguments, places to look for the program, environment) is
// made before the fork, and child_main() calls async-signal-safe functions only. It tells through a pipe that
// exec() closes why it could not become its program: an end of file there means that the program runs.
//
// run() feeds and reads the three streams until the program has closed them, and then waits for its end. One
// deadline holds for both. A program that exceeds it is killed; one that does not end then either, because it
// waits in the kernel, is left behind after a second. So is a grandchild that keeps a stream open.
#include "src/base/subprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast {
namespace {

constexpr std::size_t capture_limit = 64u << 20;
constexpr int lowest_priority = 19;
constexpr std::chrono::milliseconds end_limit{1000};  // of a process after SIGKILL

struct Streams {
  int in = -1, out = -1, err = -1;  ///< -1: inherit
};

/// Why a child could not become its program, as it tells its parent: what it could not do, with which path.
struct StartFailure {
  enum class Step : int { program, interpreter, folder, output };
  int error = 0;
  Step step = Step::program;
  char path[512] = {};
};

/// The kernel says of a script whose interpreter is missing that the script is. Async-signal-safe.
bool lacks_interpreter(const char* script, StartFailure& failure) {
  const int fd = ::open(script, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char line[sizeof failure.path] = {};
  const ssize_t n = ::read(fd, line, sizeof line - 1);
  ::close(fd);
  if (n < 3 || line[0] != '#' || line[1] != '!') return false;
  char* name = line + 2 + std::strspn(line + 2, " \t");
  name[std::strcspn(name, " \t\r\n")] = '\0';
  if (::access(name, F_OK) == 0) return false;
  std::strcpy(failure.path, name);
  return true;
}

[[noreturn]] void child_main(const Command& command, Streams streams, char* const* places, char* const* argv,
                             char* const* environment, int report, pid_t parent, const rlimit& descriptors) {
  // Only async-signal-safe calls from here on: the parent may have threads.
  ::prctl(PR_SET_DUMPABLE, 1);  // whose it is shows in /proc, also while it waits for storage
  auto fail = [report](StartFailure::Step step, const char* path) {
    StartFailure failure{errno, step};
    std::strncpy(failure.path, path, sizeof failure.path - 1);
    [[maybe_unused]] const auto ignored = ::write(report, &failure, sizeof failure);
    ::_exit(127);
  };
  if (streams.in >= 0) ::dup2(streams.in, 0);
  if (streams.out >= 0) ::dup2(streams.out, 1);
  if (streams.err >= 0) ::dup2(streams.err, 2);
  close_inherited(report);  // before anything that may wait for storage
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  if (command.block_sigterm) sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  if (command.new_session) ::setsid();
  if (command.low_priority) ::setpriority(PRIO_PROCESS, 0, lowest_priority);
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  if (command.when_parent_ends != 0) {
    ::prctl(PR_SET_PDEATHSIG, command.when_parent_ends);
    if (::getppid() != parent) ::_exit(127);  // it died before we asked
  }
  if (!command.folder.empty() && ::chdir(command.folder.c_str()) != 0)
    fail(StartFailure::Step::folder, command.folder.c_str());
  if (!command.output.empty()) {
    const int fd =
        ::open(command.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) fail(StartFailure::Step::output, command.output.c_str());
    ::dup2(fd, 1);
    ::dup2(fd, 2);
  }
  StartFailure failure{ENOENT};
  for (; *places; ++places) {
    if (environment)
      ::execvpe(*places, argv, environment);
    else
      ::execvp(*places, argv);
    if (failure.error != ENOENT || failure.step != StartFailure::Step::program) continue;
    if (errno != ENOTDIR) failure.error = errno;  // of the first that is there
    if (errno == ENOENT && lacks_interpreter(*places, failure))
      failure.step = StartFailure::Step::interpreter;
  }
  [[maybe_unused]] const auto ignored = ::write(report, &failure, sizeof failure);
  ::_exit(127);
}

/// In the PATH that it gets, where it gets one; execvpe would take that of this process.
std::vector<std::string> places_of_program(const Command& command) {
  constexpr std::string_view key = "PATH=";
  if (command.environment)
    for (const std::string& entry : *command.environment)
      if (entry.starts_with(key))
        return places_in(std::string_view(entry).substr(key.size()), command.argv[0]);
  return {command.argv[0]};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const auto& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

/// Where any program would have failed, the machine is short of something (`cannot create a process`, which
/// the diagnosis of ranks knows), not the program wrong.
Error not_started(const std::string& program, const StartFailure& failure) {
  using Step = StartFailure::Step;
  const int error = failure.error;
  if (error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE)
    return system_error("cannot create a process for " + program, error);
  switch (failure.step) {
    case Step::folder:
      return system_error(std::string("cannot enter the working directory ") + failure.path, error);
    case Step::output:
      return system_error(std::string("cannot write to ") + failure.path, error);
    case Step::interpreter:
      return system_error("cannot start " + program + ": its interpreter is " + failure.path, error);
    case Step::program:
      break;
  }
  return system_error("cannot start " + program, error);
}

Launched launch(const Command& command, Streams streams) {
  expects(!command.argv.empty(), "a command has a program");
  const std::vector<std::string> names = places_of_program(command);
  const auto argv = pointers(command.argv), places = pointers(names);
  std::vector<char*> environment;
  if (command.environment) environment = pointers(*command.environment);
  const rlimit descriptors = first_descriptor_limit();
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) throw not_started(command.argv[0], {errno});
  files::Fd reader(report[0]);
  const files::Fd writer(report[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0)
    child_main(command, streams, places.data(), argv.data(),
               command.environment ? environment.data() : nullptr, writer.get(), parent, descriptors);
  if (pid < 0) throw not_started(command.argv[0], {errno});
  return {pid, std::move(reader)};
}

}  // namespace

std::vector<std::string> places_in(std::string_view search_path, const std::string& name) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> out;
  for (std::size_t begin = 0, end = 0; end < search_path.size(); begin = end + 1) {
    end = std::min(search_path.find(':', begin), search_path.size());
    const std::string folder(search_path.substr(begin, end - begin));
    out.push_back((folder.empty() ? "." : folder) + "/" + name);
  }
  return out;
}

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Launched launch(const Command& command) { return launch(command, Streams{command.input}); }

std::optional<Error> why_not_run(int report, const std::string& program) {
  StartFailure failure;
  ssize_t n = 0;
  do n = ::read(report, &failure, sizeof failure);
  while (n < 0 && errno == EINTR);
  return n == sizeof failure ? std::optional(not_started(program, failure)) : std::nullopt;
}

pid_t spawn(const Command& command) {
  const Launched process = launch(command);
  if (const auto why = why_not_run(process.report.get(), command.argv[0])) {
    ::waitpid(process.pid, nullptr, 0);
    throw Error(*why);
  }
  return process.pid;
}

Finished run(const Command& command, std::chrono::milliseconds limit, const std::string& input) {
  int in[2], out[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw system_error("cannot create a pipe", errno);
  files::Fd in_read(in[0]), in_write(in[1]), out_read(out[0]), out_write(out[1]), err_read(err[0]),
      err_write(err[1]);
  const Launched process = launch(command, {in_read.get(), out_write.get(), err_write.get()});
  const pid_t pid = process.pid;
  in_read.reset(), out_write.reset(), err_write.reset();
  ::fcntl(in_write.get(), F_SETFL, O_NONBLOCK);
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);

  Finished result;
  const Deadline deadline = Deadline::in(limit);
  std::size_t sent = 0;
  if (input.empty()) in_write.reset();
  bool killed = false;
  while (out_read || err_read) {
    pollfd fds[3] = {{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}, {in_write.get(), POLLOUT, 0}};
    const int ready = ::poll(fds, 3, killed ? 1000 : deadline.left_ms() + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 || (!killed && deadline.passed())) {
      if (killed) break;  // a grandchild keeps the pipe open: we have what we need
      ::kill(pid, SIGKILL);
      killed = result.timed_out = true;
      continue;
    }
    char buffer[1 << 16];
    auto drain = [&](files::Fd& fd, short events, std::string& text) {
      if (!fd || !(events & (POLLIN | POLLHUP | POLLERR))) return;
      const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
      if (n > 0 && text.size() < capture_limit) text.append(buffer, as_size(n));
      if (n == 0 || (n < 0 && errno != EINTR)) fd.reset();
    };
    drain(out_read, fds[0].revents, result.out);
    drain(err_read, fds[1].revents, result.err);
    if (in_write && fds[2].revents) {
      const ssize_t n = ::write(in_write.get(), input.data() + sent, input.size() - sent);
      if (n > 0) sent += as_size(n);
      if (n < 0 && errno != EAGAIN && errno != EINTR) sent = input.size();
      if (sent >= input.size()) in_write.reset();
    }
  }
  // Both streams are closed, which a program may do before it ends: the deadline holds here too.
  int status = 0;
  std::optional<Deadline> last;  // for one that was killed; it may wait in the kernel for longer
  for (;;) {
    const pid_t waited = ::waitpid(pid, &status, WNOHANG);
    if (waited == pid || (waited < 0 && errno != EINTR)) break;
    if (!killed && deadline.passed()) {
      ::kill(pid, SIGKILL);
      killed = result.timed_out = true;
    }
    if (killed && !last) last = Deadline::in(end_limit);
    if (last && last->passed()) {
      status = SIGKILL;
      break;
    }
    ::poll(nullptr, 0, 1);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  if (!result.timed_out)
    if (const auto why = why_not_run(process.report.get(), command.argv[0])) throw Error(*why);
  result.status = exit_status(status);
  return result;
}

}  // namespace holdfast

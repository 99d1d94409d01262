#include "launcher/health/guarded.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr std::size_t answer_limit = 1u << 20;
constexpr Millis reap_limit{200};  // after SIGKILL; a process stuck in the kernel is left to init

struct Running {
  pid_t pid = -1;
  files::Fd answer;
  std::string text;
  bool ended = false;  ///< it has closed its end of the pipe
};

[[noreturn]] void run_and_exit(const Check& check, int answer) {
  close_inherited(answer);
  ::setpgid(0, 0);  // its children can be ended with it
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  nlohmann::json list = nlohmann::json::array();
  try {
    for (const auto& finding : check.run()) list.push_back(to_json(finding));
  } catch (const std::exception& error) {
    list.push_back(
        to_json({check.name, Fitness::unknown, std::string("cannot be checked: ") + error.what(), ""}));
  }
  try {
    files::append_all(answer, list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                      check.name);
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

Running start(const Check& check) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("cannot create a pipe", errno);
  files::Fd reader(ends[0]);
  const files::Fd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw system_error("cannot start a process for a check", errno);
  if (pid == 0) run_and_exit(check, writer.get());
  ::setpgid(pid, pid);
  return {pid, std::move(reader), {}, false};
}

void read_some(Running& running) {
  char buffer[4096];
  const ssize_t n = ::read(running.answer.get(), buffer, sizeof buffer);
  if (n > 0 && running.text.size() < answer_limit) running.text.append(buffer, as_size(n));
  if (n == 0 || (n < 0 && errno != EINTR)) running.ended = true;
}

void wait_for_all(std::vector<Running>& all, const Deadline& deadline) {
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<Running*> who;
    for (auto& running : all)
      if (!running.ended) waiting.push_back({running.answer.get(), POLLIN, 0}), who.push_back(&running);
    if (waiting.empty() || deadline.passed()) return;
    if (::poll(waiting.data(), waiting.size(), deadline.left_ms() + 1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents) read_some(*who[i]);
  }
}

/// The wait status; nothing when the process has not ended.
std::optional<int> reap(pid_t pid, const Deadline& deadline) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    if (deadline.passed()) return std::nullopt;
    ::poll(nullptr, 0, 1);
  }
}

std::vector<Finding> answer_of(const Check& check, Running& running, Millis limit) {
  if (!running.ended) {
    ::kill(-running.pid, SIGKILL);
    ::kill(running.pid, SIGKILL);
    (void)reap(running.pid, Deadline::in(reap_limit));
    return {{check.name, Fitness::critical,
             fmt::format("does not answer within {:.1f} s", static_cast<double>(limit.count()) / 1000),
             "A hung mount, driver or tool? See the kernel's log"}};
  }
  const auto status = reap(running.pid, Deadline::in(reap_limit));
  if (status && WIFSIGNALED(*status))
    return {{check.name, Fitness::critical,
             fmt::format("the check was ended by signal {}", WTERMSIG(*status)),
             "A broken driver library? See the kernel's log"}};
  const auto list = json_from(running.text);
  std::vector<Finding> findings;
  if (list.is_array())
    for (const auto& item : list)
      if (auto finding = finding_from(item)) findings.push_back(std::move(*finding));
  if (!list.is_array())
    findings.push_back({check.name, Fitness::unknown, "the check has written no result", ""});
  return findings;
}

}  // namespace

std::vector<Finding> run_guarded(const std::vector<Check>& checks, Millis limit) {
  const Deadline deadline = Deadline::in(limit);
  std::vector<Running> all;
  for (const auto& check : checks) all.push_back(start(check));
  wait_for_all(all, deadline);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (auto& finding : answer_of(checks[i], all[i], limit)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace holdfast::launcher

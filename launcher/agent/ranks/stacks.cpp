// stacks_of() reads state, kernel function and system call of each thread from /proc, the main thread first
// and 64 threads at most. Then it asks one thread after the other for its stack: it sends the stack signal by
// tgkill, and reads in the rank's log what the handler writes, for 250 ms at most. No thread is asked that
// would not answer, or that the signal would end: it must sleep or run, and must catch and not block the
// signal. CPU time is the difference of two looks that are at least 300 ms apart.
//
// why_left() names one thread of a killed process that waits uninterruptibly in the kernel, with its system
// call and the file of it: by its descriptor, or by the path in the memory of the process.
//
// Both may hang in a read, so agents call them by read_apart(): in a detached thread that shares nothing with
// the loop but Asked. Once the Handle is destroyed, its mutex lets no answer reach a loop that may be gone.
#include "launcher/agent/ranks/stacks.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/flight/stack_dump.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t max_text = 48 << 10;
constexpr std::size_t max_threads = 64;
constexpr Millis of_one_thread{250};  // for one thread to write its stack
constexpr Millis sample_time{300};    // for the CPU time, which the kernel counts in hundredths of a second
constexpr Millis poll{5};

/// Text of a file in /proc; "" when it is gone or not readable.
std::string proc_text(const fs::path& path) {
  const files::Fd fd = files::try_open(path, O_RDONLY);
  if (!fd) return "";
  std::string text(4096, '\0');
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  text.resize(got > 0 ? as_size(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct ThreadNow {
  pid_t id = 0;
  std::string name, waits_in, call;
  char state = '?';
  double cpu_s = 0, cpu_later_s = 0;
  std::string calls;
};

/// State and CPU time from a stat line; its second field is a name in brackets, of any characters.
void read_stat(const std::string& stat, char& state, double& cpu_s) {
  const auto name_ends = stat.rfind(')');
  if (name_ends == std::string::npos) return;
  std::istringstream in(stat.substr(name_ends + 1));
  in >> state;
  std::string skipped;
  for (int field = 4; field <= 13; ++field) in >> skipped;
  double user = 0, system = 0;
  if (in >> user >> system) cpu_s = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// A system call in which training programs hang, and which of its arguments names a file.
struct KnownCall {
  long number;
  const char* name;
  int descriptor = -1, path = -1;
};
constexpr std::array known_calls = {
    KnownCall{SYS_futex, "futex"},
    KnownCall{SYS_read, "read", 0},
    KnownCall{SYS_write, "write", 0},
    KnownCall{SYS_readv, "readv", 0},
    KnownCall{SYS_writev, "writev", 0},
    KnownCall{SYS_pread64, "pread64", 0},
    KnownCall{SYS_pwrite64, "pwrite64", 0},
    KnownCall{SYS_fsync, "fsync", 0},
    KnownCall{SYS_fdatasync, "fdatasync", 0},
    KnownCall{SYS_ftruncate, "ftruncate", 0},
    KnownCall{SYS_fallocate, "fallocate", 0},
    KnownCall{SYS_close, "close", 0},
    KnownCall{SYS_fstat, "fstat", 0},
    KnownCall{SYS_getdents64, "getdents64", 0},
    KnownCall{SYS_ioctl, "ioctl", 0},
    KnownCall{SYS_openat, "openat", -1, 1},
    KnownCall{SYS_newfstatat, "newfstatat", -1, 1},
    KnownCall{SYS_mkdirat, "mkdirat", -1, 1},
    KnownCall{SYS_unlinkat, "unlinkat", -1, 1},
    KnownCall{SYS_renameat2, "renameat2", -1, 1},
#ifdef SYS_open  // not of every machine
    KnownCall{SYS_open, "open", -1, 0},
    KnownCall{SYS_stat, "stat", -1, 0},
    KnownCall{SYS_mkdir, "mkdir", -1, 0},
    KnownCall{SYS_unlink, "unlink", -1, 0},
    KnownCall{SYS_rename, "rename", -1, 0},
    KnownCall{SYS_poll, "poll"},
    KnownCall{SYS_select, "select"},
    KnownCall{SYS_epoll_wait, "epoll_wait"},
#endif
    KnownCall{SYS_ppoll, "ppoll"},
    KnownCall{SYS_epoll_pwait, "epoll_pwait"},
    KnownCall{SYS_nanosleep, "nanosleep"},
    KnownCall{SYS_clock_nanosleep, "clock_nanosleep"},
    KnownCall{SYS_recvmsg, "recvmsg"},
    KnownCall{SYS_wait4, "wait4"},
};

/// A file of /proc/PID/syscall: "NUMBER ARGUMENT...", or "running".
struct Call {
  long number = -1;
  std::array<std::uint64_t, 2> arguments{};
  const KnownCall* known = nullptr;
};
Call read_call(const std::string& line) {
  Call call;
  std::istringstream in(line);
  if (!(in >> call.number)) return {};
  in >> std::hex;
  for (auto& argument : call.arguments) {
    std::string digits;  // 0x...
    in >> digits;
    if (digits.size() > 2) std::from_chars(digits.data() + 2, digits.data() + digits.size(), argument, 16);
  }
  const auto known = std::ranges::find(known_calls, call.number, &KnownCall::number);
  if (known != known_calls.end()) call.known = &*known;
  return call;
}

std::string call_of(const std::string& line) {
  const Call call = read_call(line);
  if (call.known) return call.known->name;
  return call.number < 0 ? "" : fmt::format("system call {}", call.number);
}

/// The file that a system call is about; "": none, or it cannot be read.
std::string file_of(pid_t pid, const Call& call) {
  if (!call.known) return "";
  if (call.known->descriptor >= 0) {
    std::error_code unknown;
    return fs::read_symlink(
        fmt::format("/proc/{}/fd/{}", pid, static_cast<int>(call.arguments[as_size(call.known->descriptor)])),
        unknown);
  }
  if (call.known->path < 0) return "";
  constexpr std::uint64_t page_bytes = 4096;
  const std::uint64_t at = call.arguments[as_size(call.known->path)];
  std::array<char, 256> path{};
  const iovec here{path.data(), std::min<std::size_t>(path.size(), page_bytes - at % page_bytes)};
  const iovec there{reinterpret_cast<void*>(at), here.iov_len};  // NOLINT(performance-no-int-to-ptr)
  const ssize_t got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
  return got <= 0 ? "" : std::string(path.data(), ::strnlen(path.data(), as_size(got)));
}

std::vector<ThreadNow> threads_of(pid_t pid) {
  const fs::path tasks = fmt::format("/proc/{}/task", pid);
  std::vector<ThreadNow> out;
  for (const auto& name : files::list(tasks)) {
    ThreadNow t;
    if (std::from_chars(name.data(), name.data() + name.size(), t.id).ec != std::errc{}) continue;
    const fs::path task = tasks / name;
    const std::string stat = proc_text(task / "stat");
    if (stat.empty()) continue;  // it has just ended
    read_stat(stat, t.state, t.cpu_s);
    t.name = proc_text(task / "comm");
    t.waits_in = proc_text(task / "wchan");
    if (t.waits_in == "0") t.waits_in.clear();
    t.call = call_of(proc_text(task / "syscall"));
    out.push_back(std::move(t));
  }
  // The main thread first: it trains.
  std::ranges::stable_sort(out, {}, [&](const ThreadNow& t) { return t.id != pid; });
  if (out.size() > max_threads) out.resize(max_threads);
  return out;
}

/// Is `signal` in the set of signals that the line `which` of a thread's status has?
bool in_set(const std::string& status, const char* which, int signal) {
  const auto at = status.find(which);
  if (at == std::string::npos) return false;
  const auto from = status.find_first_not_of(" \t", at + std::string_view(which).size());
  if (from == std::string::npos) return false;
  std::uint64_t set = 0;
  std::from_chars(status.data() + from, status.data() + status.size(), set, 16);
  return (set >> (signal - 1)) & 1;
}

/// Can this thread write its stack now?
bool can_answer(pid_t pid, const ThreadNow& thread) {
  if (thread.state != 'S' && thread.state != 'R') return false;
  const std::string status = proc_text(fmt::format("/proc/{}/task/{}/status", pid, thread.id));
  return in_set(status, "SigCgt:", flight::stack_signal()) &&
         !in_set(status, "SigBlk:", flight::stack_signal());
}

/// Reads the text that was appended to a log since it was opened.
class LogTail {
 public:
  explicit LogTail(const fs::path& log) : fd_(files::try_open(log, O_RDONLY)) {
    if (fd_) at_ = std::max<off_t>(0, ::lseek(fd_.get(), 0, SEEK_END));
  }
  /// The text between the lines that begin and end a thread's stack, once both are there.
  std::optional<std::string> stack_of(pid_t thread) {
    std::array<char, 4096> more{};
    ssize_t got = 0;
    while (text_.size() < 4 * max_text && (got = ::pread(fd_.get(), more.data(), more.size(), at_)) > 0)
      text_.append(more.data(), as_size(got)), at_ += got;
    const std::string begins = fmt::format("{}{}\n", flight::stack_begins, thread),
                      ends = fmt::format("{}{}\n", flight::stack_ends, thread);
    const auto from = text_.find(begins), to = text_.find(ends, from);
    if (from == std::string::npos || to == std::string::npos) return std::nullopt;
    return text_.substr(from + begins.size(), to - from - begins.size());
  }

 private:
  files::Fd fd_;
  off_t at_ = 0;
  std::string text_;
};

/// "/opt/bin/holdfast-train(_ZN8holdfast4stepEv+0x1f) [0x55d0]" -> "holdfast-train: holdfast::step()+0x1f"; a
/// line of another form (from another writer) is left out.
std::string readable(const std::string& line) {
  const auto bracket = line.find('('), closed = line.find(')', bracket);
  if (bracket == std::string::npos || closed == std::string::npos ||
      line.find("[0x", closed) == std::string::npos)
    return "";
  const std::string file = fs::path(line.substr(0, bracket)).filename();
  const std::string inside = line.substr(bracket + 1, closed - bracket - 1);
  const auto plus = inside.rfind('+');
  const std::string symbol = inside.substr(0, plus);
  if (symbol.empty()) return fmt::format("    {} {}\n", file, inside);
  int status = -1;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return fmt::format("    {}: {}{}\n", file, status == 0 ? name.get() : symbol,
                     plus == std::string::npos ? "" : inside.substr(plus));
}

std::string to_calls(const std::string& lines) {
  std::istringstream in(lines);
  std::string out, line;
  while (std::getline(in, line)) out += readable(line);
  return out;
}

const char* says(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "waits";
    case 'D':
      return "waits in the kernel and cannot be interrupted (disk, network file system, GPU driver)";
    case 'T':
      return "is stopped";
    case 't':
      return "is stopped by a debugger";
    case 'Z':
      return "has ended";
    default:
      return "is in an unknown state";
  }
}

/// Where a thread of the process waits, if one cannot be interrupted.
std::string kernel_wait(const RunProcess& process) {
  std::string who = fmt::format("process {}", process.pid);
  if (process.rank >= 0) who = fmt::format("rank {} ({})", process.rank, who);
  for (const ThreadNow& thread : threads_of(process.pid)) {
    if (thread.state != 'D') continue;
    const Call call = read_call(proc_text(fmt::format("/proc/{}/task/{}/syscall", process.pid, thread.id)));
    const std::string file = file_of(process.pid, call);
    return fmt::format("{} waits in the kernel (state D){}{}{}", who,
                       thread.call.empty() ? "" : " in " + thread.call, file.empty() ? "" : " of " + file,
                       thread.waits_in.empty() ? "" : fmt::format(" ({})", thread.waits_in));
  }
  return "";
}

/// Calls `read` in a thread of its own and `done` in the loop's thread. The thread may outlive the caller and
/// the loop.
control::Loop::Handle read_apart(control::Loop& loop, std::function<std::string()> read,
                                 std::function<void(std::string)> done) {
  struct Asked {
    std::mutex mutex;
    control::Loop* loop = nullptr;
    std::function<void(std::string)> done;
  };
  auto asked = std::make_shared<Asked>();
  asked->loop = &loop;
  asked->done = std::move(done);
  std::thread([asked, read = std::move(read)] {
    std::string text = read();
    const std::scoped_lock lock(asked->mutex);
    if (asked->loop == nullptr) return;
    asked->loop->post([weak = std::weak_ptr(asked), text = std::move(text)] {
      const auto still = weak.lock();
      if (!still) return;
      std::function<void(std::string)> call;
      {
        const std::scoped_lock held(still->mutex);
        if (still->loop == nullptr) return;
        call = std::exchange(still->done, nullptr);
      }
      if (call) call(text);
    });
  }).detach();
  return control::Loop::Handle(asked.get(), [asked](void*) {
    const std::scoped_lock lock(asked->mutex);
    asked->loop = nullptr;
  });
}

}  // namespace

std::string stacks_of(pid_t pid, const fs::path& log, Millis limit) {
  const auto start = Clock::now();
  auto threads = threads_of(pid);
  if (threads.empty()) return fmt::format("process {} is gone\n", pid);
  LogTail tail(log);
  for (ThreadNow& thread : threads) {
    if (Clock::now() - start > limit - sample_time || !can_answer(pid, thread)) continue;
    if (::syscall(SYS_tgkill, pid, thread.id, flight::stack_signal()) != 0) continue;
    const auto asked = Clock::now();
    for (;;) {
      if (auto lines = tail.stack_of(thread.id)) {
        thread.calls = to_calls(*lines);
        break;
      }
      if (Clock::now() - asked > of_one_thread) break;
      std::this_thread::sleep_for(poll);
    }
  }
  if (const auto sampled = Clock::now() - start; sampled < sample_time)
    std::this_thread::sleep_for(sample_time - sampled);
  const double sampled_s = std::chrono::duration<double>(Clock::now() - start).count();
  std::string out = fmt::format("process {}, {} threads\n", pid, threads.size());
  for (ThreadNow& t : threads) {
    char ignored = '?';
    t.cpu_later_s = t.cpu_s;
    read_stat(proc_text(fmt::format("/proc/{}/task/{}/stat", pid, t.id)), ignored, t.cpu_later_s);
    out += fmt::format("thread {} {} {}{}{}, {:.2f} s of CPU time in {:.1f} s\n", t.id, t.name, says(t.state),
                       t.call.empty() ? "" : " in " + t.call,
                       t.waits_in.empty() ? "" : fmt::format(" ({})", t.waits_in), t.cpu_later_s - t.cpu_s,
                       sampled_s);
    out += t.calls;
    if (out.size() > max_text) {
      out.resize(max_text);
      return out + "\n...\n";
    }
  }
  return out;
}

control::Loop::Handle dump_stacks(control::Loop& loop, pid_t pid, const fs::path& log,
                                  std::function<void(std::string)> done) {
  const auto read = [pid, log]() -> std::string {
    try {
      return stacks_of(pid, log);
    } catch (const std::exception& error) {
      return fmt::format("the stacks of process {} could not be read: {}\n", pid, error.what());
    }
  };
  return read_apart(loop, read, std::move(done));
}

std::string why_left(const std::vector<RunProcess>& left) {
  std::string text = left.size() == 1
                         ? "1 process has been killed and has not ended"
                         : fmt::format("{} processes have been killed and have not ended", left.size());
  for (const RunProcess& process : left)
    if (const std::string wait = kernel_wait(process); !wait.empty()) return text + "; " + wait;
  return text;
}

control::Loop::Handle look_why_left(control::Loop& loop, std::vector<RunProcess> left,
                                    std::function<void(std::string)> done) {
  const auto read = [left = std::move(left)]() -> std::string {
    try {
      return why_left(left);
    } catch (const std::exception& error) {
      return fmt::format("{} processes have been killed and have not ended ({})", left.size(), error.what());
    }
  };
  return read_apart(loop, read, std::move(done));
}

}  // namespace holdfast::launcher

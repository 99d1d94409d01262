// Whose process is it? processes_of() decides in this order, from /proc alone:
//
// 1. A process of this user whose environment names this run, this node and an attempt belongs to that
//    attempt.
// 2. Any other one belongs to the attempt and rank of its parent, over any number of generations: a program
//    may replace its environment, and a process that is being killed has none. Orphans of the guardian get 0.
// 3. A process that says that it waits for a rank (rank.warm) belongs to the rank that its session has
//    become; if there is none, and the leader of the session has ended, it gets attempt 0.
//
// Processes may start and end during the look, so whoever kills them looks again until nothing is left. Files
// of a process that has ended read as empty. Where descriptors or memory run out, proc_file() throws: a
// process that cannot be seen must not be taken for one that has ended.
#include "launcher/agent/ranks/run_processes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

/// The value of `name` in an environment block ("A=1\0B=2\0"), or nothing.
std::optional<std::string_view> value_in(std::string_view block, std::string_view name) {
  for (std::size_t at = 0; at < block.size();) {
    const std::size_t end = std::min(block.find('\0', at), block.size());
    const std::string_view entry = block.substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
    at = end + 1;
  }
  return std::nullopt;
}

/// Attempt and rank, or nothing.
std::optional<RunProcess> said_in(std::string_view block) {
  const auto attempt = value_in(block, "HOLDFAST_ATTEMPT");
  if (!attempt) return std::nullopt;
  RunProcess p;
  std::from_chars(attempt->data(), attempt->data() + attempt->size(), p.attempt);
  if (const auto rank = value_in(block, "HOLDFAST_RANK"))
    std::from_chars(rank->data(), rank->data() + rank->size(), p.rank);
  return p;
}

/// A file of /proc/PID; empty when the process is gone, a zombie (its environment), or not ours.
std::string proc_file(const std::string& pid, const char* file) {
  const int fd = ::open(("/proc/" + pid + "/" + file).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)  // what cannot be seen may live
      throw system_error("cannot look at the processes of this node", errno);
    return {};
  }
  const files::Fd held(fd);
  std::string block;
  char buffer[1 << 14];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) block.append(buffer, as_size(n));
  return block;
}

/// "STATE PARENT ..." of "PID (NAME) STATE PARENT ...", where NAME may be anything; empty when it is gone.
std::string state_of(int pid) {
  const std::string facts = proc_file(std::to_string(pid), "stat");
  const auto name_end = facts.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= facts.size() ? "" : facts.substr(name_end + 2);
}

/// Processor time of a process, and of its children that have ended and been waited for.
double cpu_seconds(int pid) {
  constexpr int first = 11, count = 4;  // user and system time of both, behind "STATE PARENT ..."
  std::istringstream facts(state_of(pid));
  std::string skipped;
  for (int i = 0; i < first; ++i) facts >> skipped;
  double ticks = 0, each = 0;
  for (int i = 0; i < count && facts >> each; ++i) ticks += each;
  // What it has used itself is known better, as far as its first thread has used it.
  double first_thread_ns = 0;
  std::istringstream(proc_file(std::to_string(pid), "schedstat")) >> first_thread_ns;
  return std::max(ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)), 1e-9 * first_thread_ns);
}

/// Has it a GPU open (NVIDIA's, or AMD's)?
bool has_gpu(int pid) {
  constexpr std::string_view nvidia = "/dev/nvidia";
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& name : files::list(folder)) {
    std::error_code gone;
    const std::string device = std::filesystem::read_symlink(folder + "/" + name, gone).string();
    if (device == "/dev/kfd" || (device.starts_with(nvidia) && device.size() > nvidia.size() &&
                                 std::isdigit(static_cast<unsigned char>(device[nvidia.size()])) != 0))
      return true;
  }
  return false;
}

/// Has all of the process ended? A thread that waits in the kernel outlives the first one, whose state shows.
bool has_ended(int pid) {
  const std::string facts = state_of(pid);
  if (!facts.starts_with("Z")) return facts.empty();
  constexpr int before = 17;  // fields, from the state on
  std::istringstream fields(facts);
  std::string skipped;
  for (int i = 0; i < before; ++i) fields >> skipped;
  int threads = 0;
  fields >> threads;
  return threads <= 1;
}

/// Calls `found` with pid and environment of every process of this user but this one, until it says false.
template <class Found>
void each_process(Found found) {
  for (const auto& name : files::list_or_fail("/proc")) {
    int pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || end != name.data() + name.size() || pid == ::getpid()) continue;
    struct stat facts {};
    if (::stat(("/proc/" + name).c_str(), &facts) != 0 || facts.st_uid != ::getuid()) continue;
    if (!found(pid, proc_file(name, "environ"))) return;
  }
}

}  // namespace

int parent_of(int pid) {
  const std::string facts = state_of(pid);
  int parent = -1;
  if (facts.size() > 2) std::from_chars(facts.data() + 2, facts.data() + facts.size(), parent);
  return parent;
}

std::optional<ProcessFacts> process_facts(int pid) {
  std::istringstream in(state_of(pid));
  char state = 'X';
  ProcessFacts facts;
  in >> state >> facts.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) in >> skipped;
  if (!(in >> facts.started) || state == 'Z' || state == 'X') return std::nullopt;
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  facts.blank_in_name = name.find_first_of(" \t") != std::string::npos;
  return facts;
}

std::vector<RunProcess> processes_of(const RunDir& run, const std::string& node, int guardian) {
  std::map<int, RunProcess> ours;
  std::map<int, int> others;  // and their parents
  each_process([&](int pid, const std::string& block) {
    const auto dir = value_in(block, "HOLDFAST_RUN_DIR"), where = value_in(block, "HOLDFAST_NODE");
    if (!dir || !where || !said_in(block) || *dir != run.path.string() || *where != node) {
      if (!has_ended(pid)) others[pid] = parent_of(pid);
      return true;
    }
    ours[pid] = *said_in(block);
    return true;
  });
  // A process that has been killed has no environment any more while it is still leaving.
  for (bool found = true; found;) {
    found = false;
    for (auto at = others.begin(); at != others.end();) {
      const auto parent = ours.find(at->second);
      if (parent == ours.end() && (guardian <= 0 || at->second != guardian)) {
        ++at;
        continue;
      }
      ours[at->first] = parent == ours.end() ? RunProcess{} : parent->second;
      at = others.erase(at);
      found = true;
    }
  }
  std::map<int, RunProcess> ranks;  // by their sessions
  for (const auto& [pid, p] : ours)
    if (p.attempt != waiting_attempt) ranks[::getsid(pid)] = p;
  std::vector<RunProcess> out;
  for (auto& [pid, p] : ours) {
    if (p.attempt == waiting_attempt) {
      const pid_t session = ::getsid(pid);
      if (const auto rank = ranks.find(session); rank != ranks.end())
        p = rank->second;
      else if (!ours.contains(session))
        p.attempt = 0;
    }
    p.pid = pid;
    p.leads_session = ::getsid(pid) == pid;
    p.name = proc_file(std::to_string(pid), "comm");
    if (!p.name.empty()) p.name.pop_back();  // its newline
    out.push_back(p);
  }
  return out;
}

std::vector<Leftover> processes_of_rank(const RunDir& run, const std::string& node, int rank, int attempt) {
  std::vector<Leftover> out;
  for (const RunProcess& p : processes_of(run, node))
    if (p.rank == rank && p.attempt == attempt)
      out.push_back({p.pid, p.name, cpu_seconds(p.pid), has_gpu(p.pid)});
  return out;
}

std::optional<RunProcess> process_said_by(const std::vector<std::string>& environment) {
  std::string block;
  for (const auto& entry : environment) block += entry + '\0';
  auto p = said_in(block);
  if (p) p->leads_session = true;
  return p;
}

bool lives_here(const RunDir& run) {
  bool lives = false;
  each_process([&](int, const std::string& block) {
    const auto dir = value_in(block, "HOLDFAST_RUN_DIR");
    lives = dir && *dir == run.path.string();
    return !lives;
  });
  return lives;
}

}  // namespace holdfast::launcher

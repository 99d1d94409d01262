// Processors, clock and limits are read by read_*() and judged by *_findings(), which tests call with facts
// of their own; memory, /dev/shm and kernel are read and judged in one function. What counts is what this
// process may use: CPUs by its affinity, memory by the tightest limit of its cgroup and those above. The
// cluster file says what a node should have; without one only the fixed limits at the top apply.
//
// A missing answer of the kernel is no fault of the node: CPUs, clock, memory and memory controllers are then
// `unknown`. If /dev/shm cannot be read, however, ranks could not use it either, and that is critical.
#include "launcher/health/check_host.hpp"
#include "src/base/files.hpp"
#include "src/base/kernel_log.hpp"
#include "src/base/text.hpp"
#include "src/base/units.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
namespace fs = std::filesystem;

constexpr double max_offset_s = 0.1;              ///< people compare times in the logs of several nodes
constexpr rlim_t fewest_files = 4096;             ///< an agent of 8 ranks and its streams, Open MPI's sockets
constexpr rlim_t fewest_processes = 4096;         ///< 8 ranks with their threads
constexpr double least_shm_bytes = 1e9;           ///< NCCL's and MPI's windows of 8 ranks
constexpr std::int64_t max_corrected = 1000;      ///< memory errors since boot that the chipset corrected
constexpr double full_memory = 0.05, much = 0.9;  ///< parts of the whole

/// The number of CPUs in a list such as "0-3,8,10-11".
int count_of(const std::string& list) {
  int count = 0;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    const auto first = leading_number(part);
    if (!first) continue;
    const auto dash = part.find('-');
    const auto last = dash == std::string::npos ? first : leading_number(part.substr(dash + 1));
    count += static_cast<int>(last.value_or(*first) - *first) + 1;
  }
  return count;
}

/// "MemTotal:  123 kB" in bytes.
std::optional<double> meminfo(const Roots& roots, const std::string& name) {
  const std::string text = read_line(roots.proc / "meminfo").value_or("");
  for (const auto line : lines_of(text))
    if (line.starts_with(name + ":"))
      if (const auto kib = leading_number(std::string(line.substr(name.size() + 1)))) return *kib * 1024;
  return std::nullopt;
}

/// The tightest limit of this process's cgroup and those above it, version 2 or 1; nothing: none.
std::optional<double> cgroup_limit(const Roots& roots) {
  std::optional<double> limit;
  const auto take = [&](const fs::path& file) {
    const auto value = read_number(file);
    if (value && *value > 0 && (!limit || static_cast<double>(*value) < *limit))
      limit = static_cast<double>(*value);
  };
  std::istringstream in(read_line(roots.proc / "self/cgroup").value_or(""));
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("memory") == std::string::npos) continue;
    const fs::path top = roots.sys / (unified ? "fs/cgroup" : "fs/cgroup/memory");
    for (fs::path at = fs::path(line.substr(second + 1)).relative_path();; at = at.parent_path()) {
      take(top / at / (unified ? "memory.max" : "memory.limit_in_bytes"));
      if (at.empty()) break;
    }
  }
  return limit;
}

}  // namespace

CpuFacts read_cpus(const Roots& roots) {
  CpuFacts facts;
  facts.online = count_of(read_line(roots.sys / "devices/system/cpu/online").value_or(""));
  std::istringstream in(read_line(roots.proc / "self/status").value_or(""));
  const std::string name = "Cpus_allowed_list:";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) {
      line.erase(0, line.find_first_not_of(" \t", name.size()));
      facts.allowed = count_of(line);
    }
  return facts;
}

std::vector<Finding> cpu_findings(const CpuFacts& facts, const Expected& expected) {
  if (facts.online == 0 || facts.allowed == 0)
    return {{"cpu.count", Fitness::unknown, "the kernel does not report the number of CPUs", ""}};
  const std::string says = fmt::format("{} of {} CPUs may be used", facts.allowed, facts.online);
  const int wanted = expected.cluster ? expected.cluster->cpus_per_node : 0;
  if (facts.online < wanted)
    return {{"cpu.count", Fitness::warning, fmt::format("{}; the cluster file says {}", says, wanted),
             "A processor is missing, or correct cpus_per_node?"}};
  if (facts.allowed < wanted)
    return {{"cpu.count", Fitness::critical, fmt::format("{}; the cluster file says {}", says, wanted),
             "This process got too few: request all CPUs of the node from SLURM (--exclusive, "
             "--cpus-per-task)"}};
  return {{"cpu.count", Fitness::ok, says, ""}};
}

ClockFacts read_clock() {
  timex now{};  // modes 0: read only
  const int state = ::adjtimex(&now);
  ClockFacts facts;
  facts.known = state >= 0;
  facts.synchronised = state >= 0 && (now.status & STA_UNSYNC) == 0;
  facts.offset_s = static_cast<double>(now.offset) / ((now.status & STA_NANO) != 0 ? 1e9 : 1e6);
  facts.max_error_s = static_cast<double>(now.maxerror) / 1e6;
  return facts;
}

std::vector<Finding> clock_findings(const ClockFacts& facts) {
  if (!facts.known) return {{"time.sync", Fitness::unknown, "the kernel does not report it", ""}};
  const std::string off =
      fmt::format("off by {:.1f} ms, at most {:.0f} ms", facts.offset_s * 1e3, facts.max_error_s * 1e3);
  if (!facts.synchronised)
    return {{"time.sync", Fitness::warning, "the clock is not synchronised",
             "Is chrony, ntpd or ptp4l running?"}};
  if (facts.offset_s > max_offset_s || facts.offset_s < -max_offset_s)
    return {{"time.sync", Fitness::warning, off, "Is the time server reachable?"}};
  return {{"time.sync", Fitness::ok, off, ""}};
}

LimitFacts read_limits() {
  LimitFacts facts;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.files = limit.rlim_cur;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked = limit.rlim_cur;
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0) facts.processes = limit.rlim_cur;
  return facts;
}

std::vector<Finding> limit_findings(const LimitFacts& facts, const Expected& expected, bool rdma) {
  const auto text = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? "no limit" : fmt::format("{}", limit);
  };
  std::vector<Finding> out;
  if (facts.files < fewest_files)
    out.push_back(
        {"limits.files", Fitness::warning, text(facts.files) + " open files", "Set ulimit -n to 65536?"});
  else
    out.push_back({"limits.files", Fitness::ok, text(facts.files) + " open files", ""});
  if (facts.processes < fewest_processes)
    out.push_back(
        {"limits.processes", Fitness::warning, text(facts.processes) + " processes", "Raise ulimit -u?"});
  // RDMA registers memory by locking it: with a limit, ranks fail at their first collective.
  if (facts.locked != RLIM_INFINITY && rdma)
    out.push_back({"limits.locked", expected.nics() ? Fitness::critical : Fitness::warning,
                   size_text(facts.locked) + " of locked memory, and RDMA needs no limit",
                   "Set ulimit -l unlimited, also for slurmd (PropagateResourceLimitsExcept=MEMLOCK)"});
  else
    out.push_back(
        {"limits.locked", Fitness::ok,
         (facts.locked == RLIM_INFINITY ? "no limit" : size_text(facts.locked)) + " for locked memory", ""});
  return out;
}

std::vector<Finding> check_memory(const Roots& roots, const Expected& expected) {
  std::vector<Finding> out;
  const auto total = meminfo(roots, "MemTotal"), available = meminfo(roots, "MemAvailable");
  if (!total || !available) {
    out.push_back({"memory.free", Fitness::unknown, "the kernel does not report it", ""});
  } else {
    const auto limit = cgroup_limit(roots);
    std::string says = fmt::format("{} of {} available", size_text(*available), size_text(*total));
    if (limit && *limit < *total) says += ", limited to " + size_text(*limit);
    const double wanted = expected.cluster ? static_cast<double>(expected.cluster->node_memory_bytes) : 0.0;
    if (*total < wanted)
      out.push_back({"memory.free", Fitness::warning,
                     fmt::format("{}; the cluster file says {}", says, size_text(wanted)),
                     "A module is missing, or correct node_memory_bytes?"});
    else if (*available < full_memory * *total)
      out.push_back({"memory.free", Fitness::warning, says, "Which processes use it? Check /dev/shm, too"});
    else if (limit && *limit < much * *total)
      out.push_back(
          {"memory.free", Fitness::warning, says, "Request all memory of the node from SLURM (--mem=0)?"});
    else
      out.push_back({"memory.free", Fitness::ok, says, ""});
  }
  std::int64_t corrected = 0, lost = 0;
  int controllers = 0;
  const auto edac = roots.sys / "devices/system/edac/mc";
  for (const auto& name : files::list(edac)) {
    if (!name.starts_with("mc")) continue;
    ++controllers;
    corrected += read_number(edac / name / "ce_count").value_or(0);
    lost += read_number(edac / name / "ue_count").value_or(0);
  }
  if (lost > 0)
    out.push_back({"memory.ecc", Fitness::critical,
                   fmt::format("{} uncorrected memory errors since boot", lost),
                   "Replace the module (ras-mc-ctl names it)"});
  else if (corrected > max_corrected)
    out.push_back({"memory.ecc", Fitness::warning,
                   fmt::format("{} corrected memory errors since boot", corrected),
                   "A module is wearing out (ras-mc-ctl names it)"});
  else if (controllers > 0)
    out.push_back(
        {"memory.ecc", Fitness::ok, fmt::format("{} corrected memory errors since boot", corrected), ""});
  else
    out.push_back({"memory.ecc", Fitness::unknown, "no memory controller reports errors here", ""});
  return out;
}

std::vector<Finding> check_shm(const Roots& roots, const Expected& expected) {
  struct statvfs facts {};
  if (::statvfs(roots.shm.c_str(), &facts) != 0)
    return {{"memory.shm", Fitness::critical, roots.shm.string() + ": " + std::strerror(errno),
             "Mount a tmpfs there"}};
  const double free = static_cast<double>(facts.f_bavail) * static_cast<double>(facts.f_frsize);
  const double size = static_cast<double>(facts.f_blocks) * static_cast<double>(facts.f_frsize);
  const double need = static_cast<double>(expected.shm_bytes);
  const std::string says =
      fmt::format("{} of {} free in {}", size_text(free), size_text(size), roots.shm.string());
  if (free < need)
    return {{"memory.shm", Fitness::critical, says + ", " + size_text(need) + " needed",
             "Mount it larger, remove old files, or move the local level to a disk "
             "(checkpoint.local)"}};
  const double wanted = expected.cluster ? static_cast<double>(expected.cluster->node_shm_bytes) : 0.0;
  if (size < wanted)
    return {{"memory.shm", Fitness::warning,
             fmt::format("{}; the cluster file says {}", says, size_text(wanted)),
             "Mount it larger, or correct node_shm_bytes?"}};
  if (free < least_shm_bytes)
    return {{"memory.shm", Fitness::warning, says, "Remove old files, or mount it larger?"}};
  return {{"memory.shm", Fitness::ok, says, ""}};
}

std::vector<Finding> check_kernel(const Roots& roots) {
  std::vector<Finding> out;
  utsname name{};
  if (::uname(&name) == 0)
    out.push_back({"kernel.version", Fitness::ok,
                   fmt::format("{} {} on {}", name.sysname, name.release, name.machine), ""});
  // "always [madvise] never"
  const std::string pages = read_line(roots.sys / "kernel/mm/transparent_hugepage/enabled").value_or("");
  const auto open = pages.find('['), close = pages.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    out.push_back({"kernel.hugepages", Fitness::unknown, "the kernel has no transparent huge pages", ""});
  } else {
    const std::string mode = pages.substr(open + 1, close - open - 1);
    out.push_back({"kernel.hugepages", Fitness::ok,
                   "transparent huge pages: " + mode +
                       (mode == "never" ? " (the optimizer on the CPU is slower without them)" : ""),
                   ""});
  }
  const KernelLogFile log = open_kernel_log(roots.kernel_log);
  if (log.file)
    out.push_back({"kernel.log", Fitness::ok, "the kernel's log can be read", ""});
  else
    out.push_back({"kernel.log", Fitness::warning, fmt::format("{}: {}", log.why, unseen_without_kernel_log),
                   log.advice});
  return out;
}

}  // namespace holdfast::launcher

// look() hands one look at a time to a thread, and the answer comes in the loop. GPUs are asked in a second
// thread, which may hang in the driver; a look uses the counters of NVLinks that this one gave last.
//
// Before::look() reads the counters of the RDMA ports, lists the processes of the run, and asks the kernel by
// netlink for the payload of all TCP sockets. For each rank it adds up what its processes show in /proc, and
// takes the sockets that they hold by inode, each once. Counters are kept by process, device or socket, so
// that one that has vanished or begun again does not hide the growth of the others. A new attempt begins with
// no counters of ranks, and a rank is in the answer from its second look on.
//
// If processes cannot be listed, or no file can be opened, `seconds` is 0: nothing is known, which is not
// that nothing has moved. If the kernel does not tell all sockets, this look counts no bytes of the network.
#include "launcher/agent/ranks/outside_look.hpp"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/nvml/library.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr Millis shutdown{100};
/// Of an RDMA port; AWS EFA has the last two only.
struct RdmaCounter {
  const char* file;
  std::int64_t unit;  ///< bytes
};
constexpr RdmaCounter rdma_counters[] = {{"counters/port_xmit_data", 4},
                                         {"counters/port_rcv_data", 4},
                                         {"hw_counters/tx_bytes", 1},
                                         {"hw_counters/rx_bytes", 1}};
constexpr std::string_view states = "TtDRS";  // of a process: what comes first says most
constexpr struct timeval netlink_patience { 1, 0 };

/// "NAME: NUMBER" lines of /proc/PID/io.
std::optional<std::int64_t> file_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/io");
  std::string name;
  std::int64_t value = 0, sum = 0;
  int found = 0;
  while (file >> name >> value)
    if (name == "rchar:" || name == "wchar:" || name == "read_bytes:" || name == "write_bytes:") {
      sum += value;
      ++found;
    }
  return found == 4 ? std::optional(sum) : std::nullopt;
}

struct ProcessNow {
  std::optional<std::int64_t> cpu_ms;
  char state = '?';
};
/// Of "PID (NAME) STATE ...", where NAME may be anything; its CPU time has the numbers 14 and 15.
ProcessNow process_now(int pid) {
  ProcessNow now;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return now;
  std::istringstream in(line.substr(name_ends + 1));
  in >> now.state;
  std::string skipped;
  for (int field = 4; field < 14; ++field) in >> skipped;
  std::int64_t user = 0, system = 0;
  if (in >> user >> system) now.cpu_ms = (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
  return now;
}

/// Inodes of the sockets that a process has open.
std::vector<std::uint64_t> sockets_of(int pid) {
  std::vector<std::uint64_t> out;
  const fs::path folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& name : files::list(folder)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(folder / name, gone).string();
    constexpr std::string_view prefix = "socket:[";
    std::uint64_t inode = 0;
    if (!gone && target.starts_with(prefix)) {
      std::from_chars(target.data() + prefix.size(), target.data() + target.size(), inode);
      out.push_back(inode);
    }
  }
  return out;
}

/// Payload in the answer about one socket; nothing where the kernel is too old to tell it.
std::int64_t payload_of(const inet_diag_msg* socket, int length) {
  for (auto* part = reinterpret_cast<const rtattr*>(socket + 1); RTA_OK(part, length);
       part = RTA_NEXT(part, length)) {
    constexpr std::size_t needed = offsetof(tcp_info, tcpi_bytes_received) + sizeof(__u64);
    if (part->rta_type != INET_DIAG_INFO || RTA_PAYLOAD(part) < needed) continue;
    tcp_info facts{};
    std::memcpy(&facts, RTA_DATA(part), needed);
    return static_cast<std::int64_t>(facts.tcpi_bytes_acked + facts.tcpi_bytes_received);
  }
  return 0;
}

/// Of one family. False: not all of them.
bool ask_kernel(int netlink, unsigned char family, std::map<std::uint64_t, std::int64_t>& out) {
  struct {
    nlmsghdr header{};
    inet_diag_req_v2 what{};
  } request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.what.sdiag_family = family;
  request.what.sdiag_protocol = IPPROTO_TCP;
  request.what.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  request.what.idiag_states = ~0U;
  if (::send(netlink, &request, sizeof request, 0) < 0) return false;
  alignas(nlmsghdr) std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t got = ::recv(netlink, buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    auto left = static_cast<unsigned>(got);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == NLMSG_ERROR || (m->nlmsg_flags & NLM_F_DUMP_INTR)) return false;
      if (m->nlmsg_type == NLMSG_DONE) return true;
      const auto* socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(m));
      out[socket->idiag_inode] =
          payload_of(socket, static_cast<int>(m->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof *socket)));
    }
  }
}

std::int64_t size_of(const fs::path& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

/// When it was changed, in ns; 0: it is not there.
std::int64_t time_of(const fs::path& path) {
  struct stat facts {};
  if (path.empty() || ::stat(path.c_str(), &facts) != 0) return 0;
  return facts.st_mtim.tv_sec * std::int64_t{1'000'000'000} + facts.st_mtim.tv_nsec;
}

/// Without a descriptor for them, counters look as if they stood still.
bool files_can_be_opened() { return bool(files::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC))); }

}  // namespace

std::optional<std::map<std::uint64_t, std::int64_t>> tcp_payload() {
  std::map<std::uint64_t, std::int64_t> out;
  const files::Fd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return std::nullopt;
  ::setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &netlink_patience, sizeof netlink_patience);
  if (!ask_kernel(netlink.get(), AF_INET, out) || !ask_kernel(netlink.get(), AF_INET6, out))
    return std::nullopt;
  return out;
}

Counters rdma_bytes(const fs::path& sys) {
  Counters out;
  const fs::path devices = sys / "class/infiniband";
  for (const auto& device : files::list(devices))
    for (const auto& port : files::list(devices / device / "ports"))
      for (const auto& [name, unit] : rdma_counters) {
        const fs::path file = devices / device / "ports" / port / name;
        std::int64_t count = 0;
        if (std::ifstream(file) >> count) out[file.string()] = count * unit;
      }
  return out;
}

std::int64_t growth_since(Counters& before, Counters now) {
  std::int64_t sum = 0;
  for (const auto& [device, bytes] : now)
    if (const auto old = before.find(device); old != before.end())
      sum += std::max<std::int64_t>(0, bytes - old->second);
  before = std::move(now);
  return sum;
}

/// The counters at the last look. Only the worker's thread is at them.
struct OutsideLook::Before {
  struct Rank {
    std::int64_t log = 0, heartbeat = 0;
    Counters files, cpu_ms;  ///< by process
  };
  int attempt = 0;
  double at = 0;  ///< 0: there was none in this attempt
  std::map<int, Rank> ranks;
  Counters rdma, nvlinks;
  std::map<std::uint64_t, std::int64_t> payload;  ///< of all sockets, by inode

  Growths look(const RunDir& run, const std::string& node, const fs::path& sys, int now_attempt,
               const std::vector<WatchedRank>& watched, Counters nvlinks_now);
};

/// Loads the library at the first question: with a sick GPU that may take long.
struct OutsideLook::Nvlinks {
  std::unique_ptr<nvml::Library> library;
  Counters bytes;  ///< the last answer; the loop's thread has this one

  Counters ask() {
    if (!library) library = std::make_unique<nvml::Library>();
    Counters out;
    for (int n = 0; n < library->count().value_or(0); ++n)
      if (const auto gpu = library->by_index(static_cast<unsigned>(n)))
        if (const auto moved = library->link_bytes(*gpu)) out[std::to_string(n)] = *moved;
    return out;
  }
};

Growths OutsideLook::Before::look(const RunDir& run, const std::string& node, const fs::path& sys,
                                  int now_attempt, const std::vector<WatchedRank>& watched,
                                  Counters nvlinks_now) {
  if (std::exchange(attempt, now_attempt) != now_attempt) {
    ranks.clear();
    at = 0;
  }
  Growths out;
  out.at = steady_seconds();
  std::vector<RunProcess> processes;
  try {
    processes = processes_of(run, node);
  } catch (const Error&) {
    return out;  // what has grown counts in the next look, whose time begins with the last one that succeeded
  }
  const std::int64_t over_rdma = growth_since(rdma, rdma_bytes(sys)),
                     over_nvlinks = growth_since(nvlinks, std::move(nvlinks_now));
  if (const double before = std::exchange(at, out.at); before > 0) out.seconds = out.at - before;
  auto payload_now = tcp_payload();
  for (const auto& place : watched) {
    const auto [known, is_new] = ranks.try_emplace(place.rank);
    Rank& rank = known->second;
    RankGrowth grown;
    const std::int64_t log = size_of(place.log), heartbeat = time_of(place.heartbeat);
    grown.printed = std::max<std::int64_t>(0, log - std::exchange(rank.log, log));
    grown.touched = heartbeat != std::exchange(rank.heartbeat, heartbeat) && heartbeat > 0;
    grown.rdma = over_rdma;
    grown.nvlinks = over_nvlinks;
    Counters files, cpu_ms;
    std::set<std::uint64_t> sockets;  // processes share them
    auto state = states.size();
    for (const auto& process : processes) {
      if (process.rank != place.rank || process.attempt != attempt) continue;
      const auto facts = process_now(process.pid);
      const std::string pid = std::to_string(process.pid);
      if (const auto bytes = file_bytes(process.pid)) files[pid] = *bytes;
      if (facts.cpu_ms) cpu_ms[pid] = *facts.cpu_ms;
      state = std::min({state, states.find(facts.state), states.size()});
      const auto open = sockets_of(process.pid);
      sockets.insert(open.begin(), open.end());
    }
    grown.files = growth_since(rank.files, std::move(files));
    grown.cpu_ms = growth_since(rank.cpu_ms, std::move(cpu_ms));
    for (const auto inode : sockets) {
      if (!payload_now) break;
      const auto now = payload_now->find(inode), old = payload.find(inode);
      if (now != payload_now->end())
        grown.network += std::max<std::int64_t>(0, now->second - (old == payload.end() ? 0 : old->second));
    }
    if (state < states.size()) grown.state = states[state];
    if (!is_new) out.ranks[place.rank] = grown;
  }
  if (payload_now) payload = std::move(*payload_now);
  if (!files_can_be_opened()) out.seconds = 0;  // it has seen nothing
  return out;
}

OutsideLook::OutsideLook(control::Loop& loop, RunDir run, std::string node, fs::path sys, Millis limit)
    : run_(std::move(run)),
      node_(std::move(node)),
      sys_(std::move(sys)),
      before_(std::make_shared<Before>()),
      nvlinks_(std::make_shared<Nvlinks>()),
      limit_(limit),
      worker_(loop, shutdown),
      gpu_worker_(loop, shutdown) {}

OutsideLook::~OutsideLook() = default;

bool OutsideLook::look(int attempt, std::vector<WatchedRank> ranks,
                       std::function<void(const Growths&)> then) {
  if (!std::exchange(asking_, true))
    gpu_worker_.ask([links = nvlinks_] { return links->ask(); },
                    [this](Counters bytes) {
                      asking_ = false;
                      nvlinks_->bytes = std::move(bytes);
                    });
  if (std::exchange(looking_, true)) return worker_.busy_for().value_or(Millis(0)) <= limit_;
  worker_.ask([before = before_, run = run_, node = node_, sys = sys_, attempt, ranks = std::move(ranks),
               nvlinks = nvlinks_->bytes] { return before->look(run, node, sys, attempt, ranks, nvlinks); },
              [this, then = std::move(then)](const Growths& growths) {
                looking_ = false;
                then(growths);
              });
  return true;
}

}  // namespace holdfast::launcher

#pragma once
// What ranks that do not report do, as seen from outside: what they print, the bytes that their processes
// read, write and send, and what goes over the node's RDMA ports and NVLinks. Ranks that hang in a collective
// spin, so processor time is no sign of life; it tells which rank does not spin.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/run_processes.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

/// Where a rank is to be looked at.
struct WatchedRank {
  int rank = -1;
  std::filesystem::path log;        ///< stdout and stderr
  std::filesystem::path heartbeat;  ///< a file that the program may touch
};
/// What has grown since the look before.
struct RankGrowth {
  std::int64_t printed = 0;  ///< bytes of its log
  std::int64_t files = 0;    ///< bytes read and written, pipes and devices among them
  std::int64_t network = 0;  ///< payload bytes of its TCP sockets, sent and acknowledged, or received
  std::int64_t rdma = 0;     ///< bytes of the node's RDMA ports, ...
  std::int64_t nvlinks = 0;  ///< ... and of its NVLinks
  bool touched = false;      ///< its heartbeat file
  std::int64_t cpu_ms = 0;
  char state = '?';  ///< of its processes: T if one is stopped, else D, R, S
};
struct Growths {
  double at = 0;       ///< when it was looked, in seconds of a steady clock
  double seconds = 0;  ///< since the look before; 0: there was none in this attempt, or nothing could be seen
  std::map<int, RankGrowth> ranks;  ///< a rank that was not there at the look before is not among them
};

/// Payload bytes of each TCP socket of this network namespace, by inode; nothing where the kernel does not
/// tell all of them.
std::optional<std::map<std::uint64_t, std::int64_t>> tcp_payload();
/// Of bytes, by the device.
using Counters = std::map<std::string, std::int64_t>;
/// Of the RDMA ports below `sys`/class/infiniband, both directions.
Counters rdma_bytes(const std::filesystem::path& sys);
/// How much all of them have grown since `before`, which becomes `now`. A counter that was not there before,
/// or that is less now, has not: what it counted may be from any time.
std::int64_t growth_since(Counters& before, Counters now);

class OutsideLook {
 public:
  /// `limit`: how long a look may take. It waits for ever for a process that hangs with its memory's lock.
  OutsideLook(control::Loop& loop, RunDir run, std::string node, std::filesystem::path sys = "/sys",
              Millis limit = Millis(3000));
  ~OutsideLook();
  /// Looks in a thread; not while the look before has not ended. False: it has taken longer than the limit.
  bool look(int attempt, std::vector<WatchedRank> ranks, std::function<void(const Growths&)> then);

 private:
  struct Before;
  struct Nvlinks;
  RunDir run_;
  std::string node_;
  std::filesystem::path sys_;
  std::shared_ptr<Before> before_;
  std::shared_ptr<Nvlinks> nvlinks_;
  Millis limit_;
  bool looking_ = false;
  bool asking_ = false;  ///< the GPUs, which may hang
  control::Worker worker_, gpu_worker_;
};

}  // namespace holdfast::launcher

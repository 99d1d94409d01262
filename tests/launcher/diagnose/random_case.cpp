#include <random>

#include "src/base/as_size.hpp"

#include "tests/launcher/diagnose/cases.hpp"

namespace holdfast::launcher::test {
namespace {

using enum Blame;

struct Fault {
  const char* cause;
  Blame blame;
  bool ends_node;
  int status;         ///< of the rank that suffers it; 0: it hangs and never ends by itself
  const char* words;  ///< its own
  const char* kind;   ///< sign; "": none
  std::int64_t code;
  const char* text;
  double seen_late_s;  ///< at most, and the sign at least 0
};
const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"gpu", node, true, 1, "RuntimeError: CUDA error: GPU is lost", "xid", 79,
       "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 2},
      {"gpu", node, true, 0, "", "xid", 119,
       "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout after 6s of waiting for RPC", 1},
      {"gpu", node, false, 1, "RuntimeError: CUDA error: uncorrectable ECC error encountered", "xid", 94,
       "NVRM: Xid (PCI:0000:3b:00): 94, pid=1, Contained", 2},
      {"gpu", node, true, 134, "", "xid", 95, "NVRM: Xid (PCI:0000:3b:00): 95, pid=1, Uncontained", 2},
      {"gpu", node, true, 0, "", "nvlink_error", 20034,
       "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 3", 1},
      {"gpu", program, false, 1, "CUDA error: an illegal memory access was encountered", "xid", 31,
       "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, MMU Fault", 2},
      {"oom_kill", program, false, 137, "", "oom_kill", 1, "memory.events: oom_kill 0 -> 1", 2},
      {"oom_kill", node, false, 137, "", "node_out_of_memory", 9, "Out of memory: Killed process 9 (python)",
       2},
      {"network", node, true, 0, "", "link_down", 0, "mlx5_1 port 1", 2},
      {"no_space", node, false, 135, "", "no_space_local", 0, "/dev/shm: 0.0 of 32.0 GiB free", 1},
      {"hardware", node, true, 135, "", "machine_check", 0,
       "Memory failure: 0x1: recovery action for dirty LRU page", 1},
      {"rank failed", program, false, 139, "", "", 0, "", 0},
      {"rank failed", program, false, 134, "src/x.cpp:12: assertion failed", "", 0, "", 0},
      {"rank failed", program, false, 1, "Traceback (most recent call last):\nValueError: bad sample", "", 0,
       "", 0},
      {"rank failed", program, false, 1, "", "", 0, "", 0},
      {"rank failed", nothing, false, 137, "", "", 0, "", 0},
      {"rank failed", nothing, false, -1, "", "", 0, "", 0},
      {"host_memory_full", program, false, 134,
       "terminate called after throwing an instance of 'std::bad_alloc'", "", 0, "", 0},
  };
  return all;
}

/// Messages that name a peer name the rank that has ended.
std::string complaint(std::size_t which, int culprit) {
  std::string text = complaints()[which];
  if (const auto at = text.find("rank 6"); at != std::string::npos)
    text.replace(at, 6, "rank " + std::to_string(culprit));
  return text;
}

}  // namespace

Labelled random_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto seconds = [&](double least, double most) {
    return least + (most - least) * 1e-6 * below(1000001);
  };
  const Fault& fault = faults()[below(static_cast<int>(faults().size()))];
  const int culprit = below(world), where = node_of(culprit);
  Labelled c{fault.cause, {}, {}, {where, culprit, fault.cause, fault.blame, fault.ends_node}};
  if (*fault.kind) c.truth.rank = -1;
  const bool hangs = fault.status == 0;
  // The others notice it at once, by a lost connection, or after a time limit. A remote agent may
  // be heard before the culprit's own.
  const double t = 100, noticed = hangs ? seconds(3, 60) : seconds(-0.3, 0.4);
  if (!hangs) c.ends.push_back(end(culprit, fault.status, t, fault.words));
  const bool swept = below(3) == 0;  // the agent ends the rest
  const bool mute = below(4) == 0;   // nobody reads the logs, or they say nothing that is known
  for (int rank = 0; rank < world; ++rank) {
    if (rank == culprit) continue;
    if (hangs && node_of(rank) == where) continue;
    RankEnd e = end(rank, 1, t + noticed + seconds(0, 0.8));
    const int way = below(10);
    if (swept && e.at > t + 0.1)
      e.status = way < 5 ? 143 : 137;
    else
      e.why = complaint(as_size(below(static_cast<int>(complaints().size()))), culprit),
      e.status = way < 7 ? 1 : 134;
    if (mute) e.why.clear();
    c.ends.push_back(std::move(e));
  }
  if (mute && !c.ends.empty() && c.ends.front().rank == culprit && fault.status == 1)
    c.ends.front().why.clear();
  if (*fault.kind)
    c.signs.push_back(sign(where, fault.kind, t + seconds(-0.2, fault.seen_late_s), fault.text, fault.code));
  // Unrelated events of a cluster.
  const int elsewhere = below(nodes);
  if (below(3) == 0) c.signs.push_back(sign(elsewhere, "thermal", t - seconds(0, 50), "GPU 1"));
  if (below(3) == 0)
    c.signs.push_back(
        sign(elsewhere, "xid", t + noticed + 1, "NVRM: Xid (PCI:0000:5d:00): 45, pid=2, Ch 00000010", 45));
  if (below(4) == 0)
    c.signs.push_back(sign(elsewhere, "xid", t - seconds(0, 9), "NVRM: Xid (PCI:0000:5d:00): 63, pid=2", 63));
  if (below(5) == 0) {
    const double flap = t - seconds(20, 200);
    c.signs.push_back(sign(elsewhere, "link_down", flap, "mlx5_7 port 1"));
    c.signs.push_back(sign(elsewhere, "link_up", flap + 2, "mlx5_7 port 1"));
  }
  if (below(6) == 0)
    c.signs.push_back(sign((where + 1) % nodes, "oom_kill", t - seconds(0, 5),
                           "Memory cgroup out of memory: Killed process 3 (x)", 3));
  std::stable_sort(c.ends.begin(), c.ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.at < b.at; });
  return c;
}

}  // namespace holdfast::launcher::test

#include <algorithm>

#include "tests/launcher/diagnose/cases.hpp"

namespace holdfast::launcher::test {
namespace {

using enum Blame;

constexpr const char* xid79 =
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
constexpr const char* xid94 =
    "NVRM: Xid (PCI:0000:3b:00): 94, pid=2211, name=python, Contained: SM (0x1). RST: No, D-RST: No";
constexpr const char* xid95 =
    "NVRM: Xid (PCI:0000:3b:00): 95, pid=2211, Uncontained: LTC TAG (0x2,0x0). RST: Yes";
constexpr const char* xid48 =
    "NVRM: Xid (PCI:0000:3b:00): 48, pid=2211, An uncorrectable double bit error (DBE) has been detected";
constexpr const char* xid31 =
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=2211, Ch 0000000b, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 "
    "faulted";
constexpr const char* xid13 =
    "NVRM: Xid (PCI:0000:3b:00): 13, pid=2211, Graphics SM Warp Exception on (GPC 2, TPC 5, SM 0): Out Of "
    "Range Address";
constexpr const char* xid43 = "NVRM: Xid (PCI:0000:5d:00): 43, pid=3344, Ch 00000008";
constexpr const char* xid45 = "NVRM: Xid (PCI:0000:5d:00): 45, pid=3344, Ch 00000010";
constexpr const char* ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered";
constexpr const char* illegal = "RuntimeError: CUDA error: an illegal memory access was encountered";

/// Rank `culprit` ends with `status` at 10 s, all others report errors; signs as given.
Labelled one(std::string name, int culprit, int status, std::string why, std::vector<SeenSign> signs,
             Truth truth, double others_from = 10.05, int others_status = 1) {
  Labelled c{std::move(name), {}, std::move(signs), std::move(truth)};
  c.ends.push_back(end(culprit, status, 10, std::move(why)));
  others(c.ends, others_status, others_from, {culprit});
  std::stable_sort(c.ends.begin(), c.ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.at < b.at; });
  return c;
}
/// The same after earlier attempts.
Labelled after(Labelled c, std::vector<PastXid> past) {
  c.past = std::move(past);
  return c;
}
Truth by(int rank, std::string cause, Blame blame, bool ends_node = false) {
  return {node_of(rank), rank, std::move(cause), blame, ends_node};
}

/// Xid 74 by its registers.
void nvlinks(std::vector<Labelled>& out) {
  const auto xid74 = [](const char* registers) {
    return std::string(
               "NVRM: Xid (PCI:0000:9b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error "
               "detected on link 3(") +
           registers + ")";
  };
  const std::string aborted = "RuntimeError: CUDA error: unspecified launch failure";
  const std::string mechanical = xid74("0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"),
                    parity = xid74("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"),
                    corrected = xid74("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0"),
                    secondary = xid74("0x0, 0x0, 0x0, 0x10000, 0x0, 0x0, 0x0");
  out.push_back(one("NVLink: its connection is to be inspected", 11, 1, aborted,
                    {sign(2, "xid", 9.7, mechanical, 74)}, {2, -1, "gpu", node, true}));
  out.push_back(one("NVLink: a parity error", 11, 1, aborted, {sign(2, "xid", 9.7, parity, 74)},
                    {2, -1, "gpu", node, false}));
  out.push_back(one(
      "NVLink: a parity error of the link for the third time", 11, 1, aborted,
      {sign(2, "xid", -9000, parity, 74), sign(2, "xid", -700, parity, 74), sign(2, "xid", 9.7, parity, 74)},
      {2, -1, "gpu", node, true}));
  out.push_back(one("NVLink: the errors of the link were corrected", 11, 1, aborted,
                    {sign(2, "xid", 9.7, corrected, 74)}, by(11, "rank failed", program)));
  out.push_back(one("NVLink: a secondary error beside the GPU that is gone", 11, 1, aborted,
                    {sign(2, "xid", 9.7, secondary, 74), sign(2, "xid", 9.6, xid79, 79)},
                    {2, -1, "gpu", node, true}));
  out.push_back(one("NVLink: an error without its registers, as NVML tells it", 11, 1, aborted,
                    {sign(2, "xid", 9.7, "Xid 74 of GPU 3 (0000:9b:00, GPU-5f1b0a77-0001)", 74)},
                    {2, -1, "gpu", node, false}));
}

/// Xids that programs cause: what earlier attempts and other Xids say.
void programs_xids(std::vector<Labelled>& out) {
  const auto page_fault = [] {
    return one("", 5, 1, illegal, {sign(1, "xid", 9.9, xid31, 31)}, {1, -1, "gpu", program, false});
  };
  const auto named = [](std::string name, Labelled c) {
    c.name = std::move(name);
    return c;
  };
  const Truth by_gpu{1, -1, "gpu", node, true};
  out.push_back(named("a page fault of the rank that had one in the attempt before",
                      after(page_fault(), {{31, 1, 5, xid31}})));
  out.push_back(named("a page fault of a rank that had one on another node",
                      after(page_fault(), {{31, 1, 9, xid31}, {31, 3, 5, xid31}})));
  out.push_back(named("a GPU that had shown it to a rank which has had it on another node, too",
                      after(page_fault(), {{31, 1, 9, xid31}, {31, 3, 9, xid31}})));
  out.push_back(
      named("a page fault on the GPU that had another number", after(page_fault(), {{13, 1, 9, xid31}})));
  out.push_back(named("it is not known which rank had it", after(page_fault(), {{31, 1, -1, xid31}})));
  out.push_back(named("it is not known which GPU had it", after(page_fault(), {{31, 1, 9, "Xid 31"}})));
  {
    auto c = named("a GPU with a page fault for two ranks", after(page_fault(), {{31, 1, 9, xid31}}));
    c.truth = by_gpu;
    out.push_back(c);
  }
  {
    auto c = named("two GPUs have it at once: a bug of all ranks", after(page_fault(), {{31, 1, 9, xid31}}));
    c.signs.push_back(sign(3, "xid", 9.95, xid31, 31));
    out.push_back(c);
  }
  {
    auto c = named("two ranks of the node have failed, and none is named",
                   after(page_fault(), {{31, 1, 9, xid31}}));
    c.ends.push_back(end(6, 1, 10.01, illegal));
    std::erase_if(c.ends, [](const RankEnd& e) { return e.rank == 6 && e.at != 10.01; });
    out.push_back(c);
  }
  {
    auto c = named("a page fault beside a row that was remapped", page_fault());
    c.signs.push_back(sign(1, "xid", 9.5, "NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper", 63));
    c.truth.blame = node;
    out.push_back(c);
    c = named("the same again on the same GPU", after(c, {{31, 1, 5, xid31}}));
    c.truth = by_gpu;
    out.push_back(c);
  }
  {
    auto c = named("a row was remapped on another GPU", after(page_fault(), {{31, 1, 5, xid31}}));
    c.signs.push_back(sign(1, "xid", 9.5, "NVRM: Xid (PCI:0000:5d:00): 63, pid=1, Row Remapper", 63));
    out.push_back(c);
  }
  const auto unknown = [](int number) {
    return one("", 5, 1, "RuntimeError: CUDA error: unknown error",
               {sign(1, "xid", -200, "NVRM: Xid (PCI:0000:3b:00): " + std::to_string(number), number),
                sign(1, "xid", 9.9, "NVRM: Xid (PCI:0000:3b:00): " + std::to_string(number), number)},
               {1, -1, "gpu", node, false});
  };
  const std::string text999 = "NVRM: Xid (PCI:0000:3b:00): 999";
  out.push_back(named("an Xid that is not in the table, again and again",
                      after(unknown(999), {{999, 1, 5, text999}, {999, 1, 5, text999}})));
  {
    auto c = named("an Xid that is not in the table, of a rank that had it on another node",
                   after(unknown(999), {{999, 0, 5, text999}}));
    c.truth.blame = program;
    out.push_back(c);
  }
  for (const int number : {45, 61, 106, 107, 108, 122, 123, 124, 157}) {
    auto c = named("nothing follows from Xid " + std::to_string(number) + ", however often it comes",
                   after(unknown(number), {{number, 1, 5, text999}, {number, 1, 9, text999}}));
    c.truth = by(5, "rank failed", program);
    out.push_back(c);
  }
  {
    auto c = named("the key of confidential computing could not be changed", unknown(151));
    c.truth.ends_node = true;
    out.push_back(c);
  }
}

void gpus(std::vector<Labelled>& out) {
  out.push_back(one("a GPU off the bus; its rank says so", 6, 1, "RuntimeError: CUDA error: GPU is lost",
                    {sign(1, "xid", 9.9, xid79, 79)}, {1, -1, "gpu", node, true}));
  out.push_back(one("a GPU off the bus, told 2 s late", 6, 134, "", {sign(1, "xid", 12, xid79, 79)},
                    {1, -1, "gpu", node, true}));
  {
    Labelled c{"a GPU off the bus; its own ranks hang, the others give up",
               {},
               {sign(2, "xid", 8, xid79, 79)},
               {2, -1, "gpu", node, true}};
    others(c.ends, 1, 60, {8, 9, 10, 11});
    out.push_back(c);
  }
  out.push_back(one("NVML has lost a GPU", 3, 1, ecc, {sign(0, "gpu_lost", 10.5, "GPU 3 (0000:3b:00)")},
                    {0, -1, "gpu", node, true}));
  out.push_back(one("contained memory error: the same node goes on", 9, 1, ecc,
                    {sign(2, "xid", 9.8, xid94, 94)}, {2, -1, "gpu", node, false}));
  out.push_back(
      one("contained, with the driver's word for a reset", 9, 1, ecc,
          {sign(2, "xid", 9.8, xid94, 94),
           sign(2, "xid", 9.9,
                "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
                "Reset Required)",
                154)},
          {2, -1, "gpu", node, true}));
  out.push_back(one("uncontained memory error", 9, 1, ecc, {sign(2, "xid", 9.8, xid95, 95)},
                    {2, -1, "gpu", node, true}));
  out.push_back(
      one("double-bit error", 15, 1, ecc, {sign(3, "xid", 10.4, xid48, 48)}, {3, -1, "gpu", node, true}));
  out.push_back(
      one("uncorrectable memory error, in the rank's words alone", 13, 1, ecc, {}, by(13, "gpu", claim)));
  out.push_back(one("a row that could not be remapped", 4, 1, ecc,
                    {sign(1, "row_remap_failure", 11, "GPU 0 (0000:1b:00)")}, {1, -1, "gpu", node, true}));
  out.push_back(one(
      "NVLink", 11, 1, "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
      {sign(2, "xid", 9.7, "NVRM: Xid (PCI:0000:9b:00): 74, pid=88, NVLink: fatal error detected on link 3",
            74)},
      {2, -1, "gpu", node, true}));
  nvlinks(out);
  out.push_back(one("NVSwitch beside victims' cleanups", 11, 1,
                    "RuntimeError: CUDA error: unspecified launch failure",
                    {sign(2, "nvlink_error", 9.7,
                          "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", 20034),
                     sign(0, "xid", 10.6, xid45, 45), sign(1, "xid", 10.6, xid45, 45)},
                    {2, -1, "gpu", node, true}));
  out.push_back(one("a program's own page fault", 5, 1, illegal, {sign(1, "xid", 9.9, xid31, 31)},
                    {1, -1, "gpu", program, false}));
  out.push_back(one("the same number again on the same GPU, of the same rank", 5, 1, illegal,
                    {sign(1, "xid", -200, xid31, 31), sign(1, "xid", 9.9, xid31, 31)},
                    {1, -1, "gpu", program, false}));
  programs_xids(out);
  out.push_back(
      one("the same number on another GPU of the node", 5, 1, illegal,
          {sign(1, "xid", -200, "NVRM: Xid (PCI:0000:9b:00): 31, pid=1", 31), sign(1, "xid", 9.9, xid31, 31)},
          {1, -1, "gpu", program, false}));
  out.push_back(one("the same number at the same address of another node", 5, 1, illegal,
                    {sign(2, "xid", -200, xid31, 31), sign(1, "xid", 9.9, xid31, 31)},
                    {1, -1, "gpu", program, false}));
  out.push_back(
      one("a burst is one event", 5, 1, illegal,
          {sign(1, "xid", 9.2, xid13, 13), sign(1, "xid", 9.6, xid13, 13), sign(1, "xid", 9.9, xid13, 13)},
          {1, -1, "gpu", program, false}));
  out.push_back(one("illegal access without any sign", 5, 1, illegal, {}, by(5, "rank failed", program)));
  out.push_back(one("an Xid that says nothing, on another node", 7, 139, "", {sign(3, "xid", 9.9, xid43, 43)},
                    by(7, "rank failed", program)));
  out.push_back(one("an Xid that is not in the table", 7, 1, "RuntimeError: CUDA error: unknown error",
                    {sign(1, "xid", 9.9, "NVRM: Xid (PCI:0000:3b:00): 999, pid=4", 999)},
                    {1, -1, "gpu", node, false}));
  out.push_back(one("the system processor of a GPU does not answer", 2, 1,
                    "RuntimeError: CUDA error: unspecified launch failure",
                    {sign(0, "xid", 9.1,
                          "NVRM: Xid (PCI:0000:3b:00): 119, pid=4, Timeout after 6s of waiting for RPC "
                          "response from GPU0 GSP!",
                          119)},
                    {0, -1, "gpu", node, true}));
  out.push_back(one("the driver's recovery action, by NVML", 2, 1, "",
                    {sign(0, "gpu_recovery", 11, "GPU 2 (0000:3b:00)", 2)}, {0, -1, "gpu", node, true}));
  out.push_back(one("the driver wants peer traffic to end", 2, 1, illegal,
                    {sign(0, "gpu_recovery", 11, "GPU 2 (0000:3b:00)", 3)}, {0, -1, "gpu", node, false}));
  out.push_back(one("another job's process holds the GPU", 12, 1,
                    "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", {},
                    by(12, "gpu", claim)));
  out.push_back(one("no driver on the node", 12, 1, "RuntimeError: no CUDA-capable device is detected", {},
                    by(12, "gpu", claim)));
  out.push_back(one(
      "GPU memory full", 0, 1,
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
      "79.11 GiB",
      {}, by(0, "gpu_memory_full", program)));
}

void memory_and_space(std::vector<Labelled>& out) {
  out.push_back(one("OOM kill in the job's cgroup", 6, 137, "",
                    {sign(1, "oom_kill", 10.01, "memory.events: oom_kill 0 -> 1", 1, 6)},
                    by(6, "oom_kill", program)));
  {
    auto c = one("OOM kill; fifteen complain before it is heard of", 6, 137, "",
                 {sign(1, "oom_kill", 10.3, "memory.events: oom_kill 0 -> 1", 1)}, by(6, "oom_kill", program),
                 9.6);
    out.push_back(c);
  }
  out.push_back(
      one("OOM kill, told by the kernel's log 2 s late", 14, 137, "",
          {sign(3, "oom_kill", 12, "Memory cgroup out of memory: Killed process 4711 (python)", 4711)},
          by(14, "oom_kill", program)));
  out.push_back(one(
      "OOM kill of a rank whose log ends with an old complaint", 6, 137, "NCCL WARN Connection reset by peer",
      {sign(1, "oom_kill", 10.01, "memory.events: oom_kill 0 -> 1", 1, 6)}, by(6, "oom_kill", program)));
  out.push_back(
      one("the node itself is out of memory", 14, 137, "",
          {sign(3, "node_out_of_memory", 10.4, "Out of memory: Killed process 4711 (holdfast-train)", 4711)},
          by(14, "oom_kill", node)));
  out.push_back(one("an OOM kill of somebody else on another node", 3, 139, "",
                    {sign(2, "oom_kill", 9, "Memory cgroup out of memory: Killed process 1 (other)", 1)},
                    by(3, "rank failed", program)));
  out.push_back(one("host memory", 3, 134, "terminate called after throwing an instance of 'std::bad_alloc'",
                    {}, by(3, "host_memory_full", program)));
  out.push_back(one("no file descriptor for a rank", 5, 127,
                    "cannot create a process for /opt/holdfast/bin/holdfast-train (Too many open files)", {},
                    by(5, "node_limit", claim)));
  out.push_back(one("no space on the shared file system", 0, 1,
                    "there is no room for a checkpoint in /lustre/run/checkpoints (No space left on device)",
                    {}, {-1, -1, "no_space", shared, false}));
  {
    Labelled c{"no space, said by everybody", {}, {}, {-1, -1, "no_space", shared, false}};
    others(c.ends, 1, 10, {}, "cannot write /lustre/run/x (No space left on device)");
    out.push_back(c);
  }
  out.push_back(one("quota", 8, 1, "OSError: [Errno 122] Disk quota exceeded", {},
                    {-1, -1, "no_space", shared, false}));
  out.push_back(one("no space in /dev/shm", 10, 1,
                    "no room for the local level /dev/shm/holdfast-1 (No space left on device)",
                    {sign(2, "no_space_local", 9.8, "/dev/shm: 0.0 of 32.0 GiB free")},
                    by(10, "no_space", node)));
  out.push_back(one("/dev/shm is full and a mapped page is missing", 10, 135, "",
                    {sign(2, "no_space_local", 9.8, "/dev/shm: 0.0 of 32.0 GiB free")},
                    {2, -1, "no_space", node, false}));
  out.push_back(one("a bus error by itself", 10, 135, "", {}, by(10, "rank failed", program)));
  out.push_back(one("/dev/shm is full elsewhere", 10, 139, "",
                    {sign(0, "no_space_local", 9.8, "/dev/shm: 0.0 of 32.0 GiB free")},
                    by(10, "rank failed", program)));
  out.push_back(one("a disk becomes read-only", 1, 1,
                    "OSError: [Errno 30] Read-only file system: '/raid/cache/x'",
                    {sign(0, "disk_read_only", 9, "EXT4-fs (md0): Remounting filesystem read-only")},
                    {0, -1, "disk", node, true}));
  out.push_back(one("memory of the host fails", 1, 135, "",
                    {sign(0, "machine_check", 10.2,
                          "Memory failure: 0x3f2a1: recovery action for dirty LRU page: Recovered")},
                    {0, -1, "hardware", node, true}));
  {
    Labelled c{"the shared file system is gone", {}, {}, {-1, -1, "shared_gone", shared, false}};
    for (int n = 0; n < nodes; ++n) c.signs.push_back(sign(n, "shared_gone", 8 + n, "/lustre/run"));
    others(c.ends, 1, 12, {}, "OSError: [Errno 5] Input/output error");
    out.push_back(c);
  }
  {
    Labelled c{
        "a checkpoint that stays out of reach", {}, {}, {-1, -1, "checkpoint_unreadable", shared, false}};
    others(
        c.ends, 1, 12, {},
        "checkpoint /runs/a/checkpoints/step-00000100 cannot be read now (manifest.json: Stale file handle, "
        "and so for 120 s)");
    out.push_back(c);
  }
  out.push_back(one("a stale handle", 4, 1, "cannot open /home/run/metrics.jsonl (Stale file handle)", {},
                    {-1, -1, "shared_gone", shared, false}));
}

void network(std::vector<Labelled>& out) {
  {
    Labelled c{"a link is down; its own ranks still wait",
               {},
               {sign(3, "link_down", 5, "mlx5_3 port 1")},
               {3, -1, "network", node, true}};
    others(c.ends, 1, 45, {12, 13, 14, 15});
    out.push_back(c);
  }
  {
    Labelled c{"a link went down and came back", {}, {}, {3, -1, "network", node, false}};
    c.signs = {sign(3, "link_down", 5, "mlx5_3 port 1"), sign(3, "link_up", 7, "mlx5_3 port 1")};
    others(c.ends, 1, 8, {});
    out.push_back(c);
  }
  out.push_back(one("a flap minutes ago is not the cause", 2, 139, "",
                    {sign(3, "link_down", -100, "mlx5_3 port 1"), sign(3, "link_up", -98, "mlx5_3 port 1")},
                    by(2, "rank failed", program)));
  {
    Labelled c{"a switch takes the links of three nodes", {}, {}, {-1, -1, "network", shared, false}};
    for (int n = 0; n < 3; ++n) c.signs.push_back(sign(n, "link_down", 5 + 0.3 * n, "mlx5_0 port 1"));
    others(c.ends, 1, 30, {});
    out.push_back(c);
  }
  out.push_back(one("a network adapter has failed", 7, 1, "NET/IB : mlx5_2:1 Got async event : device fatal",
                    {}, by(7, "network", claim)));
  {
    Labelled c{"nothing but complaints, most of rank 6", {}, {}, {1, 6, "rank failed", nothing, false}};
    others(c.ends, 1, 10, {6},
           "allreduce #3 over the world did not finish within 5 s (rank 6 has not arrived)");
    c.ends.push_back(end(6, 143, 10.6));
    out.push_back(c);
  }
  {
    Labelled c{"nothing but complaints, of nobody", {}, {}, {-1, -1, "rank failed", nothing, false}};
    others(c.ends, 1, 10, {}, "BrokenPipeError: [Errno 32] Broken pipe");
    c.truth.node = 0;  // the first one speaks for itself
    c.truth.rank = 0;
    out.push_back(c);
  }
}

void programs(std::vector<Labelled>& out) {
  const struct {
    const char* name;
    int status;
  } ways[] = {{"segmentation fault", 139},  {"illegal instruction", 132},
              {"arithmetic fault", 136},    {"abort", 134},
              {"exit code 1, no words", 1}, {"exit code 17", 17},
              {"killed from outside", 137}, {"vanished", -1}};
  int rank = 1;
  for (const auto& way : ways) {
    const Blame blame = way.status == 137 || way.status == -1 ? nothing : program;
    out.push_back(one(way.name, rank, way.status, "", {}, by(rank, "rank failed", blame)));
    // Victims that the agent ends.
    auto c = one(std::string(way.name) + ", victims are killed", rank, way.status, "", {},
                 by(rank, "rank failed", blame));
    for (RankEnd& e : c.ends)
      if (e.rank != rank) {
        e.status = e.rank % 2 ? 137 : 143;
        e.why = "";
      }
    out.push_back(c);
    rank = (rank + 5) % world;
  }
  for (const int code : {2, 3, 93}) {
    Labelled c{"all refuse with " + std::to_string(code), {}, {}, by(0, "rank failed", program)};
    others(c.ends, code, 10, {}, "train.steps is -1. Use a positive number?");
    out.push_back(c);
  }
  out.push_back(one("one refuses, the others complain first", 4, 93, "step 812 diverged", {},
                    by(4, "rank failed", program), 9.7));
  out.push_back(one("an exception of its own", 9, 1, "Traceback (most recent call last):\nKeyError: 'labels'",
                    {}, by(9, "rank failed", program)));
  {
    auto c = one("words in the log only, the others' too", 9, 1, "", {}, by(9, "rank failed", program));
    for (RankEnd& e : c.ends) {
      if (e.rank == 9) {
        c.signs.push_back(sign(2, "log_tail", e.at, illegal, 1, 9));
      } else {
        c.signs.push_back(sign(e.node, "log_tail", e.at, e.why, 1, e.rank));
        e.at -= 0.3;
        e.why = "";
      }
    }
    out.push_back(c);
  }
  out.push_back(
      one("victims abort in their watchdog", 3, 139, "", {}, by(3, "rank failed", program), 10.1, 134));
  {
    Labelled c{"the program is missing", {}, {}, by(0, "rank failed", program)};
    others(c.ends, 127, 10, {}, "", 0.01);
    out.push_back(c);
  }
  out.push_back(one("an address in use", 4, 1,
                    "RuntimeError: The server socket has failed to listen: Address already in use", {},
                    by(4, "rank failed", claim)));
  {
    auto c = one("too hot, but not to blame", 7, 139, "", {sign(2, "thermal", 8, "GPU 3 (0000:9b:00)")},
                 by(7, "rank failed", program));
    c.ends.push_back({-1, 0, 139, "", 10.5});
    out.push_back(c);
  }
  out.push_back(one("a clock that jumps is not to blame", 7, 139, "", {sign(3, "clock_jump", 9.9, "+3600 s")},
                    by(7, "rank failed", program)));
  for (const int way : {1, 134}) {
    auto c = one("killed, and the others have no words: " + std::to_string(way), 6, 137, "", {},
                 by(6, "rank failed", nothing));
    for (RankEnd& e : c.ends)
      if (e.rank != 6) {
        e.status = way;
        e.why = "";
      }
    out.push_back(c);
  }
  {
    auto c =
        one("an error without words, and the rest is killed", 6, 1, "", {}, by(6, "rank failed", program));
    for (RankEnd& e : c.ends)
      if (e.rank != 6) {
        e.status = 137;
        e.why = "";
      }
    out.push_back(c);
  }
  {
    Labelled c{"the PMIx server of a node's ranks ends", {}, {}, {2, -1, "PMIx server ended", node, false}};
    c.signs = {sign(2, "pmix_ended", 9.98, "it ended with status 137")};
    c.ends = {end(8, 195, 11), end(9, 195, 11)};
    out.push_back(c);
  }
}

}  // namespace

std::vector<Labelled> labelled_cases() {
  std::vector<Labelled> out;
  gpus(out), memory_and_space(out), network(out), programs(out);
  return out;
}

}  // namespace holdfast::launcher::test

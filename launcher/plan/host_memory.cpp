// host_memory_of() fills a CountedJob and lets counted_parts() list what it takes, one row for each part: its
// bytes on a node, whether it lies in /dev/shm, and whether it is a bound or what is allocated. A row of 0
// bytes is left out. Sizes come from the plan and from the constants at the top: most of them name the place
// that allocates so much, and change with it. The memory in which ranks compute is counted only without GPUs.
//
// Ranks of another program have no parts. For them refuse_buffers() only compares what they say to keep in
// snapshot buffers with what the node can give. Whether the parts fit is asked in fit.cpp, which also reads
// parts by name.
#include "launcher/plan/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "launcher/plan/plan.hpp"
#include "launcher/plan/units.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"
#include "src/config/lane_plan.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/read_ahead.hpp"
#include "src/config/snapshot_buffers.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20, float_bytes = 4;

// Of each rank:
constexpr std::int64_t window = 16 * mib;            // StateWindow::usual_bytes
constexpr std::int64_t chunk = 2 * mib;              // checkpoint::WriteOptions, for each of two threads
constexpr std::int64_t read_back_run = 8 * mib;      // checkpoint/shards/read_back.cpp, for "full"
constexpr std::int64_t records = 64 * mib;           // max_records of src/train/loop/trainer.cpp
constexpr std::int64_t log_lines = 1 * mib;          // that wait for a reader (src/base/log)
constexpr std::int64_t largest_reduction = 1 << 16;  // elements, of comm::Communicator
constexpr std::int64_t inbox_elements = 4 << 20;     // src/comm/mpi_exchange.cpp
constexpr std::int64_t smallest_piece = 1 << 10;     // elements, likewise
// Data of libraries, heaps, stacks, buffers of MPI and UCX: 10 MB were measured of a rank of four
// (measured_memory_test), the rest is room for connections to a thousand.
constexpr std::int64_t process = 128 * mib;
// The upper end of what is reported for a process with CUDA, cuBLAS, cuDNN and NCCL, with what they pin.
constexpr std::int64_t cuda_process = 1'500'000'000;
// Of each node: the agent (51 MB were measured on a minipod), its guardian, the PMIx server of its ranks.
constexpr std::int64_t agents = 192 * mib;
// launcher/agent/daemon/resident.hpp: programs and the libraries beside them; cuBLASLt alone has 542 MB.
constexpr std::int64_t resident = 256 * mib, resident_with_cuda = 1024 * mib;
constexpr std::int64_t log_file = 8 * mib;  // LogSpool::max_waiting
constexpr int other_logs = 2;               // of the agent with its guardian, and of the PMIx server

/// What the planner knows of a job: all that follows are formulas of these.
struct CountedJob {
  const Plan& plan;
  const config::RunConfig& config;
  bool gpus;
  bool local;          ///< there is a local level
  bool local_shm;      ///< in /dev/shm
  std::int64_t state;  ///< of a node
  std::int64_t image;  ///< what a node writes of a checkpoint: each element is saved once

  const Memory& rank() const { return plan.memory; }
  std::int64_t ranks(std::int64_t bytes_of_each) const { return bytes_of_each * plan.ranks_per_node; }
};

struct CountedPart {
  const char* name;
  std::int64_t bytes;
  bool in_shm, bound;
};

/// As the host allocates (src/device/cpu_device.cpp): in huge pages where they pay. GPUs pin what was asked
/// for.
std::int64_t in_pages(const CountedJob& job, std::int64_t bytes) {
  constexpr std::int64_t small = 4096, huge = 2 * mib;
  if (job.gpus || bytes == 0) return bytes;
  const std::int64_t page = bytes >= huge ? huge : small;
  return (bytes + page - 1) / page * page;
}

/// On the host: partial sums of replicas while they are added (shard::MemoryPlan::scratch).
std::int64_t scratch_of(const CountedJob& job) {
  const config::LanePlan lanes(job.config.train, job.plan.replicas(), job.plan.group_size);
  return largest_reduction * float_bytes * lanes.final_temporaries();
}

/// On the host: both inboxes of MpiGroup for the gradients of a shard group that lies on several nodes, and
/// for the partial sums of replicas on other nodes, of which each has one at least.
std::int64_t inboxes_of(const CountedJob& job) {
  const auto inboxes = [&](std::int64_t members, std::int64_t near) {
    if (members <= near) return std::int64_t{0};
    const std::int64_t piece = std::clamp(inbox_elements / members, smallest_piece, largest_reduction);
    return 2 * (members - near) * piece * float_bytes;
  };
  const int per_node = job.plan.ranks_per_node, group = job.plan.group_size;
  return inboxes(group, std::min(group, per_node)) +
         inboxes(job.plan.replicas(), std::max(1, per_node / group));
}

/// Snapshots: files of the local level, which are mapped and for GPUs pinned, wherever they lie; else memory.
std::int64_t snapshots_of(const CountedJob& job, std::int64_t partners) {
  if (job.local) return job.plan.local.node_bytes - partners;
  return config::snapshot_buffers({.gpu = job.gpus}) *
         job.ranks(in_pages(job, job.state / job.plan.ranks_per_node));
}

/// What PayloadPass copies pieces into, a chunk at a time.
std::int64_t staging_of(const CountedJob& job) {
  return 2 * std::min(chunk, job.image / job.plan.ranks_per_node);
}

std::vector<CountedPart> counted_parts(const CountedJob& job) {
  const auto& c = job.config.checkpoint;
  const Memory& rank = job.rank();
  const auto host = [&](std::int64_t bytes) { return job.gpus ? 0 : job.ranks(bytes); };
  const std::int64_t partners = job.plan.local.partner_every > 0 ? 2 * job.state : 0;
  return {
      // On CPUs the state itself lies in one of them.
      {"snapshot buffers", snapshots_of(job, partners), job.local_shm, false},
      // Of a folder on a disk the page cache gives them up.
      {"partner copies", job.local_shm ? partners : 0, true, false},
      // What CPU ranks compute in besides (launcher/plan/memory.hpp).
      {"copies of the parameters, frozen weights", host(rank.state.copies + rank.state.frozen), false, false},
      {"gradient sums", host(rank.state.accumulators + scratch_of(job)), false, false},
      {"gather buffers", host(rank.gathered), false, false},
      {"gradients of a micro-batch", host(rank.gradients), false, false},
      {"activations", host(in_pages(job, rank.activations)), false, false},
      {"pieces from other nodes", host(inboxes_of(job)), false, false},
      // Of GPUs: pinned.
      {"moments", job.ranks(rank.offloaded), false, false},
      {"window to the GPU", job.gpus ? job.ranks(window) : 0, false, false},
      {"staging of saves", job.ranks(staging_of(job) + (c.read_back == ReadBack::full ? read_back_run : 0)),
       false, false},
      {"tokens read ahead", job.ranks(config::read_ahead_bytes(job.config)), false, false},
      {"metrics and log lines that wait", job.ranks(records + log_lines), false, true},
      {"logs that wait", (job.plan.ranks_per_node + other_logs) * log_file, true, true},
      {"copies of programs", job.gpus ? resident_with_cuda : resident, true, true},
      {"CUDA and its libraries", job.gpus ? job.ranks(cuda_process) : 0, false, true},
      {"processes", job.ranks(process) + agents, false, true},
  };
}

bool copies_buffers(const Plan& plan, const config::RunConfig& config) {
  return config.checkpoint.partner != config::Partner::none && plan.active > 1;
}

/// Of another program no more is known than what it says of its buffers.
void refuse_buffers(const Plan& plan, const config::RunConfig& config, const config::ClusterFacts& facts) {
  const auto wanted =
      static_cast<std::int64_t>(config.rank.buffers_gib * static_cast<double>(std::int64_t{1} << 30));
  if (wanted > 0 && plan.local.folder.empty())
    throw Error(Exit::impossible, "the program's snapshot buffers have no place",
                "checkpoint.local is \"none\"", "Leave checkpoint.local out, or rank.buffers_gib?");
  const auto may_have = buffers_of_a_rank(plan, config, facts);
  if (!may_have || wanted <= *may_have) return;
  throw Error(
      Exit::impossible,
      fmt::format("a rank keeps {} in snapshot buffers but one of {} may have {}", size_text(wanted),
                  facts.name, size_text(*may_have)),
      fmt::format("seven eighths of {} of /dev/shm are for two generations{} of {}",
                  size_text(facts.node_shm_bytes), copies_buffers(plan, config) ? " and as many copies" : "",
                  count_text(plan.ranks_per_node, "rank")),
      copies_buffers(plan, config) ? "Keep less in them, or set checkpoint.partner = \"none\"?"
                                   : "Keep less in them, or use fewer ranks on a node?");
}

}  // namespace

std::optional<std::int64_t> buffers_of_a_rank(const Plan& plan, const config::RunConfig& config,
                                              const config::ClusterFacts& facts) {
  if (!config::promises_of(config.rank).client_buffers || facts.node_shm_bytes == 0 ||
      !plan.local.folder.starts_with("/dev/shm"))
    return std::nullopt;
  return config::program_share(facts.node_shm_bytes, plan.ranks_per_node, copies_buffers(plan, config));
}

std::int64_t HostMemory::total() const {
  std::int64_t sum = 0;
  for (const HostPart& part : parts) sum += part.bytes;
  return sum;
}

std::int64_t HostMemory::total_in_shm() const {
  std::int64_t sum = 0;
  for (const HostPart& part : parts) sum += part.in_shm ? part.bytes : 0;
  return sum;
}

std::int64_t HostMemory::bytes_of(const std::string& name) const {
  const auto part = std::ranges::find(parts, name, &HostPart::name);
  return part == parts.end() ? 0 : part->bytes;
}

HostMemory host_memory_of(const Plan& plan, const config::RunConfig& config,
                          const config::ClusterFacts& facts) {
  HostMemory out;
  if (!config::promises_of(config.rank).trains_as_set) {
    refuse_buffers(plan, config, facts);
    return out;
  }
  const auto& s = plan.memory.state;
  out.state = (s.parameters + s.optimizer) * plan.ranks_per_node;
  const CountedJob job{plan,
                       config,
                       facts.gpu != "none",
                       !plan.local.folder.empty(),
                       plan.local.folder.starts_with("/dev/shm"),
                       out.state,
                       plan.checkpoint_bytes / std::max(1, plan.active)};
  std::vector<CountedPart> parts = counted_parts(job);
  std::erase_if(parts, [](const CountedPart& part) { return part.bytes == 0; });
  for (const CountedPart& part : parts) out.parts.push_back({part.name, part.bytes, part.in_shm, part.bound});
  out.capacity = facts.node_memory_bytes;
  out.shm_capacity = facts.node_shm_bytes;
  return out;
}

std::vector<std::string> host_memory_says(const HostMemory& m) {
  if (m.parts.empty()) return {};
  std::size_t width = 0;
  for (const HostPart& part : m.parts) width = std::max(width, part.name.size());
  std::vector<std::string> out;
  const auto line = [&](const std::string& name, std::int64_t bytes, const std::string& note) {
    out.push_back(fmt::format("{:<{}}  {:>10}{}", name, width, size_text(bytes), note));
  };
  for (const HostPart& part : m.parts) {
    std::string note;
    if (m.state > 0 && part.bytes % m.state == 0)
      note = "  " + (part.bytes == m.state ? "a copy of the state"
                                           : fmt::format("{} copies of the state", part.bytes / m.state));
    if (part.bound) note += "  at most";
    if (part.in_shm) note += note.empty() ? "  in /dev/shm" : ", in /dev/shm";
    line(part.name, part.bytes, note);
  }
  const auto compared = [](std::int64_t have, const char* key) {
    return have > 0 ? "  of " + size_text(have)
                    : fmt::format("  not checked: the cluster file has no {}", key);
  };
  line("together", m.total(), compared(m.capacity, "node_memory_bytes"));
  line("of it in /dev/shm", m.total_in_shm(), compared(m.shm_capacity, "node_shm_bytes"));
  return out;
}

}  // namespace holdfast::launcher

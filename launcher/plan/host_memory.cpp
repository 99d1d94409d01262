#include "launcher/plan/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "launcher/plan/plan.hpp"
#include "launcher/plan/units.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"
#include "src/config/read_ahead.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::int64_t cuda_process =
    1'500'000'000;  // the upper end of what is reported for one with cuBLAS and cuDNN

bool in_memory(const std::string& folder) { return folder.starts_with("/dev/shm"); }

struct Part {
  const char* what;
  std::int64_t bytes;
  const char* hint;
};

std::vector<Part> parts_of(const HostMemory& m) {
  return {{"ranks", m.ranks, "more nodes"},
          {"moments", m.moments, "shard.offload = \"none\""},
          {"snapshots", m.snapshots, "checkpoint.local = \"none\""},
          {"snapshots of other nodes", m.partners, "checkpoint.partner = \"none\""},
          {"saves", m.saves, "checkpoint.every = 0"},
          {"tokens read ahead", m.tokens, ""},
          {"a save or a restore while it lasts", m.passing, ""},
          {"programs", m.programs, ""}};
}

void check_fit(const HostMemory& memory, const std::string& cluster) {
  if (memory.capacity == 0 || memory.total() <= memory.capacity) return;
  std::string list, hint;
  for (const Part& part : parts_of(memory)) {
    if (part.bytes == 0) continue;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", part.what, size_text(part.bytes));
    if (*part.hint != '\0') hint += (hint.empty() ? "" : ", ") + std::string(part.hint);
  }
  throw Error(Exit::impossible,
              fmt::format("a node needs {} of host memory but one of {} has {}", size_text(memory.total()),
                          cluster, size_text(memory.capacity)),
              list, hint.empty() ? "Use more nodes?" : fmt::format("Would one of these do: {}?", hint));
}

}  // namespace

HostMemory host_memory_of(const Plan& plan, const config::RunConfig& config,
                          const config::ClusterFacts& facts) {
  const bool gpus = facts.gpu != "none", local = !plan.local.folder.empty(),
             saves = config.checkpoint.every > 0;
  const auto& rank = plan.memory;
  HostMemory out;
  // What somebody else's program keeps is not known.
  if (std::filesystem::path(config.rank.command.front()).filename() != "holdfast-train") return out;
  out.state = (rank.state.parameters + rank.state.optimizer) * plan.ranks_per_node;
  out.moments = rank.offloaded * plan.ranks_per_node;
  if (!gpus) out.ranks = (rank.needed() - rank.activations) * plan.ranks_per_node - (local ? out.state : 0);
  if (local) {
    // Snapshot buffers of GPUs are pinned, wherever their files lie.
    out.partners = plan.local.partner_every > 0 ? 2 * out.state : 0;
    out.snapshots = plan.local.node_bytes - out.partners;
    if (!in_memory(plan.local.folder)) {
      out.partners = 0;
      out.snapshots = gpus ? out.snapshots : 0;
    }
  }
  const std::int64_t image = plan.checkpoint_bytes / std::max(1, plan.active);  // each element is saved once
  if (saves)
    out.saves = 2 * image;
  else if (!gpus)
    out.saves = image;
  else
    out.passing = image;
  if (gpus && !local) out.passing = std::max(out.passing, out.state);  // a restore
  out.tokens = config::read_ahead_bytes(config) * plan.ranks_per_node;
  if (gpus) out.programs = cuda_process * plan.ranks_per_node;
  out.capacity = facts.node_memory_bytes;
  check_fit(out, facts.name);
  return out;
}

std::vector<std::string> host_memory_says(const HostMemory& m) {
  const auto copies = [&](std::int64_t bytes) {
    return m.state > 0 && bytes % m.state == 0
               ? fmt::format(" ({} of its state)",
                             bytes == m.state ? "a copy" : fmt::format("{} copies", bytes / m.state))
               : std::string();
  };
  if (m == HostMemory{}) return {};
  std::string list;
  const auto add = [&](const char* what, std::int64_t bytes, const std::string& note) {
    if (bytes > 0) list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", what, size_text(bytes), note);
  };
  add("ranks", m.ranks, "");
  add("moments", m.moments, "");
  add("snapshots", m.snapshots, copies(m.snapshots));
  add("those of other nodes", m.partners, copies(m.partners));
  add("saves", m.saves, copies(m.saves));
  add("tokens read ahead", m.tokens, "");
  add("while a save or a restore lasts", m.passing, copies(m.passing));
  std::vector<std::string> out;
  if (!list.empty()) out.push_back(list);
  out.push_back(fmt::format(
      "together {}{}{}", size_text(m.total()), m.capacity > 0 ? " of " + size_text(m.capacity) : "",
      m.programs > 0 ? ", with about " + size_text(m.programs) + " of CUDA and its libraries" : ""));
  if (m.capacity == 0)
    out.push_back("not checked: the cluster file does not say what a node has (node_memory_bytes)");
  return out;
}

}  // namespace holdfast::launcher

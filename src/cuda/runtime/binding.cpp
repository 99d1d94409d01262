// src/cuda/device/module.cpp goes through these functions in this order, before it makes the GPU's runtime:
// users_of() says who of the node uses which GPU; near_cpus() reads the CPUs near each of them; share_of()
// cuts this rank's share out of those, by whole cores; cpus_to_bind() compares it with what the rank is
// allowed, and bind_to() binds. Then gpu_nics() lists the cards that NCCL is told to use. A card is near a
// GPU by the number of PCI bridges on the way that both share; NUMA nodes count only where bridges say
// nothing.
//
// A file of sysfs that is missing is no failure: its answer is empty, and an empty list of CPUs in the end
// means that the thread stays where it is. A list of CPUs that cannot be parsed is an Error.
#include "src/cuda/runtime/binding.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::cuda {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view nvidia = "0x10de", display_class = "0x03";

/// The first line of a small file; "" when it cannot be read.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

fs::path pci_device(const fs::path& sysfs, const std::string& bus) { return sysfs / "bus/pci/devices" / bus; }

/// From the root complex to the device: "pci0000:3a", "0000:3a:01.0", ...; empty when there is no such
/// device.
std::vector<std::string> pci_path(const fs::path& device) {
  std::error_code failure;
  const fs::path real = fs::canonical(device, failure);
  std::vector<std::string> path;
  for (const auto& part : real)
    if (!path.empty() || part.string().starts_with("pci")) path.push_back(part.string());
  return path;
}

int common_bridges(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool has_port_up(const fs::path& nic) {
  const auto ports = files::list(nic / "ports");
  return std::any_of(ports.begin(), ports.end(), [&](const std::string& port) {
    return line_of(nic / "ports" / port / "state").starts_with("4");  // "4: ACTIVE"
  });
}

/// Names of RDMA devices with a port that is up.
std::vector<std::string> nics_up(const fs::path& sysfs) {
  auto names = files::list(sysfs / "class/infiniband");
  std::erase_if(names,
                [&](const std::string& name) { return !has_port_up(sysfs / "class/infiniband" / name); });
  return names;
}

/// Those with the most bridges in common with the GPU, at least the root.
std::vector<std::string> nics_by_bridges(const fs::path& sysfs, const std::string& bus) {
  const auto gpu = pci_path(pci_device(sysfs, bus));
  std::vector<std::string> nearest;
  int most = 1;
  for (const auto& name : nics_up(sysfs)) {
    const int common = common_bridges(gpu, pci_path(sysfs / "class/infiniband" / name / "device"));
    if (common > most) {
      most = common;
      nearest.clear();
    }
    if (common == most) nearest.push_back(name);
  }
  return nearest;
}

std::vector<std::string> nics_by_numa(const fs::path& sysfs, const std::string& bus) {
  const std::string numa = line_of(pci_device(sysfs, bus) / "numa_node");
  if (numa.empty() || numa.starts_with("-")) return {};
  auto names = nics_up(sysfs);
  std::erase_if(names, [&](const std::string& name) {
    return line_of(sysfs / "class/infiniband" / name / "device/numa_node") != numa;
  });
  return names;
}

std::set<std::string> set_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

/// Logical CPUs of one core with `cpu`.
std::vector<int> core_of(const fs::path& sysfs, int cpu) {
  const auto text =
      line_of(sysfs / "devices/system/cpu" / fmt::format("cpu{}", cpu) / "topology/thread_siblings_list");
  return text.empty() ? std::vector{cpu} : parse_cpus(text);
}

bool contains(const std::vector<int>& sorted, int x) {
  return std::binary_search(sorted.begin(), sorted.end(), x);
}

}  // namespace

std::vector<int> parse_cpus(std::string_view text) {
  const auto bad = [&] {
    return Error(Exit::runtime, fmt::format("'{}' is no list of CPUs", text), "it should look like 0-3,8");
  };
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> cpus;
  const char *at = text.data(), *end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [next, failure] = std::from_chars(at, end, value);
    if (failure != std::errc{} || value < 0) throw bad();
    at = next;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first || last >= CPU_SETSIZE) throw bad();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at != end && (*at++ != ',' || at == end)) throw bad();
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpus_text(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t j = i;
    while (j + 1 < cpus.size() && cpus[j + 1] == cpus[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (j > i) text += fmt::format("-{}", cpus[j]);
    i = j + 1;
  }
  return text;
}

std::vector<std::string> gpus_of(const fs::path& sysfs) {
  std::vector<std::string> gpus;
  for (const auto& bus : files::list(sysfs / "bus/pci/devices")) {
    const fs::path device = pci_device(sysfs, bus);
    if (line_of(device / "vendor") == nvidia && line_of(device / "class").starts_with(display_class))
      gpus.push_back(bus);
  }
  return gpus;
}

std::vector<int> near_cpus(const fs::path& sysfs, const std::string& bus) {
  return parse_cpus(line_of(pci_device(sysfs, bus) / "local_cpulist"));
}

Users users_of(const std::vector<std::string>& visible, bool one_was_given, int local_rank, int local_ranks,
               const std::vector<std::string>& on_node) {
  expects(!visible.empty() && local_rank < local_ranks, "a rank of the node has a GPU");
  Users users;
  if (one_was_given && visible.size() == 1) {
    const auto mine = std::find(on_node.begin(), on_node.end(), visible.front());
    if (mine != on_node.end()) return {on_node, as_size(mine - on_node.begin())};
    return {visible, 0};
  }
  for (int rank = 0; rank < local_ranks; ++rank)
    users.gpus.push_back(visible[as_size(rank) % visible.size()]);
  users.me = as_size(local_rank);
  return users;
}

std::vector<int> share_of(const fs::path& sysfs, const std::vector<std::vector<int>>& users, std::size_t me) {
  expects(me < users.size(), "the user is one of the users");
  const std::vector<int>& near = users[me];
  const auto same = [&](const std::vector<int>& other) { return other == near; };
  const auto sharers = as_size(std::count_if(users.begin(), users.end(), same));
  const auto place =
      as_size(std::count_if(users.begin(), users.begin() + static_cast<std::ptrdiff_t>(me), same));
  // Cores by their first logical CPU.
  std::vector<std::vector<int>> cores;
  std::set<int> taken;
  for (const int cpu : near) {
    if (taken.contains(cpu)) continue;
    std::vector<int> core;
    for (const int sibling : core_of(sysfs, cpu))
      if (contains(near, sibling) && taken.insert(sibling).second) core.push_back(sibling);
    cores.push_back(std::move(core));
  }
  std::vector<int> share;
  if (cores.empty()) return share;
  const std::size_t first = place * cores.size() / sharers;
  const std::size_t last = std::max((place + 1) * cores.size() / sharers, first + 1);
  for (std::size_t i = first; i < last; ++i) share.insert(share.end(), cores[i].begin(), cores[i].end());
  std::sort(share.begin(), share.end());
  return share;
}

std::vector<int> cpus_to_bind(const std::vector<int>& near, const std::vector<int>& share,
                              const std::vector<int>& allowed) {
  std::vector<int> both;
  std::set_intersection(near.begin(), near.end(), allowed.begin(), allowed.end(), std::back_inserter(both));
  if (both == near) both = share;
  return both == allowed ? std::vector<int>{} : both;
}

std::vector<std::string> near_nics(const fs::path& sysfs, const std::string& bus) {
  auto nics = nics_by_bridges(sysfs, bus);
  return nics.empty() ? nics_by_numa(sysfs, bus) : nics;
}

std::vector<std::string> gpu_nics(const fs::path& sysfs) {
  std::set<std::string> by_bridges, by_numa;
  for (const auto& gpu : gpus_of(sysfs)) {
    by_bridges.merge(set_of(nics_by_bridges(sysfs, gpu)));
    by_numa.merge(set_of(nics_by_numa(sysfs, gpu)));
  }
  // A GPU whose own card is down does not bring in those of its whole node, for storage too.
  const auto& all = by_bridges.empty() ? by_numa : by_bridges;
  return {all.begin(), all.end()};
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

bool bind_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace holdfast::cuda

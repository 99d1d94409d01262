#include "launcher/health/local_site.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <system_error>

#include "launcher/health/check_software.hpp"
#include "launcher/health/check_storage.hpp"
#include "launcher/health/nvml.hpp"
#include "launcher/health/pair_link.hpp"
#include "src/base/files.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

std::string real_path(const fs::path& link) {
  std::error_code error;
  const auto path = fs::canonical(link, error);
  return error ? "" : path.string();
}

/// NVML writes "00000000:18:00.0", /sys "0000:18:00.0".
std::string sysfs_name(const std::string& pci) {
  return lower(pci.size() > 12 ? pci.substr(pci.size() - 12) : pci);
}

std::size_t shared_steps(const std::string& a, const std::string& b) {
  std::istringstream one(a), two(b);
  std::size_t steps = 0;
  for (std::string x, y; std::getline(one, x, '/') && std::getline(two, y, '/') && x == y;) ++steps;
  return steps;
}

std::string interface_of(const Roots& roots, const std::string& towards) {
  if (!towards.empty())
    if (auto name = interface_towards(towards); !name.empty() && name != "lo") return name;
  // The default route: destination 0.
  const std::string routes = read_line(roots.proc / "net/route").value_or("");
  for (const auto line : lines_of(routes)) {
    std::istringstream fields{std::string(line)};
    std::string name, destination;
    fields >> name >> destination;
    if (destination == "00000000") return name;
  }
  return {};
}

void probe_gpus(const Roots& roots, LocalSite& site) {
  const auto nvml = read_nvml(roots.nvml);
  std::vector<std::string> gpus;
  std::vector<std::pair<std::string, std::string>> nics;
  for (const auto& gpu : nvml.gpus) {
    gpus.push_back(real_path(roots.sys / "bus/pci/devices" / sysfs_name(gpu.pci)));
    if (site.gpu_name.empty()) {
      site.gpu_name = gpu.name;
      site.gpu_memory_bytes = gpu.memory_bytes.value_or(0);
    }
  }
  for (const auto& name : files::list(roots.sys / "class/infiniband"))
    nics.emplace_back(name, real_path(roots.sys / "class/infiniband" / name / "device"));
  site.gpus = static_cast<int>(gpus.size());
  const auto nearest = nearest_nics(gpus, nics);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    config::GpuFacts gpu;
    gpu.gpu = gpu.rail = static_cast<int>(i);
    gpu.nic = nearest[i];
    gpu.numa =
        static_cast<int>(std::max<std::int64_t>(0, read_number(fs::path(gpus[i]) / "numa_node").value_or(0)));
    const auto netdevs = files::list(roots.sys / "class/infiniband" / gpu.nic / "device/net");
    if (!gpu.nic.empty() && !netdevs.empty()) gpu.netdev = netdevs.front();
    site.gpu_facts.push_back(std::move(gpu));
  }
  for (const auto& [name, path] : nics)
    if (std::find(nearest.begin(), nearest.end(), name) == nearest.end()) site.other_nics.push_back(name);
}

}  // namespace

std::vector<std::string> nearest_nics(const std::vector<std::string>& gpu_paths,
                                      const std::vector<std::pair<std::string, std::string>>& nic_paths) {
  struct Match {
    std::size_t steps, gpu, nic;
  };
  std::vector<Match> matches;
  for (std::size_t g = 0; g < gpu_paths.size(); ++g)
    for (std::size_t n = 0; n < nic_paths.size(); ++n)
      if (!gpu_paths[g].empty() && !nic_paths[n].second.empty())
        matches.push_back({shared_steps(gpu_paths[g], nic_paths[n].second), g, n});
  std::stable_sort(matches.begin(), matches.end(),
                   [](const auto& a, const auto& b) { return a.steps > b.steps; });
  std::vector<std::string> nearest(gpu_paths.size());
  std::set<std::size_t> taken;
  for (const auto& match : matches)
    if (nearest[match.gpu].empty() && taken.insert(match.nic).second)
      nearest[match.gpu] = nic_paths[match.nic].first;
  return nearest;
}

LocalSite probe_local_site(const Roots& roots, const std::string& node, const std::string& towards) {
  LocalSite site;
  site.node = node;
  probe_gpus(roots, site);
  site.interface = interface_of(roots, towards);
  struct statvfs shm {};
  if (::statvfs(roots.shm.c_str(), &shm) == 0)
    site.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
  std::istringstream in(read_line(roots.proc / "mounts").value_or(""));
  const auto mounts = network_mounts(roots);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string device, mount, type;
    fields >> device >> mount >> type;
    if (std::find(mounts.begin(), mounts.end(), fs::path(mount)) != mounts.end())
      site.shared.push_back({mount, type});
  }
  if (const auto mpi = check_mpi(); mpi.front().fitness == control::NodeHealth::Fitness::ok)
    site.mpi = mpi.front().says;
  return site;
}

}  // namespace holdfast::launcher

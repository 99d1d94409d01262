#include "launcher/health/this_machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "launcher/health/local_site.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

/// That this process may use.
int cpus_here() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? std::max(1, CPU_COUNT(&allowed)) : 1;
}

std::int64_t memory_here() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

/// "h100" of "NVIDIA H100 80GB HBM3".
std::string model_of_gpu(const std::string& name) {
  std::string text = lower(name);
  if (const std::string_view maker = "nvidia "; text.starts_with(maker)) text.erase(0, maker.size());
  const std::string model = text.substr(0, text.find(' '));
  return model.empty() ? "gpu" : model;
}

}  // namespace

bool has_gpus(const config::ClusterFacts& machine) { return machine.gpu != "none"; }

config::ClusterFacts this_machine(const std::string& node, int ranks) {
  const LocalSite site = probe_local_site({}, node, "");
  config::ClusterFacts facts;
  facts.name = "local";
  facts.description = "this machine";
  facts.cpus_per_node = cpus_here();
  facts.node_memory_bytes = memory_here();
  facts.node_shm_bytes = site.shm_bytes;
  facts.shared = {"/"};
  facts.scalable_units = {{"local", node}};
  facts.control_interface = "lo";
  if (site.gpus > 0) {
    facts.gpu = model_of_gpu(site.gpu_name);
    facts.gpus_per_node = site.gpus;
    facts.gpu_memory_bytes = site.gpu_memory_bytes;
    facts.gpus = site.gpu_facts;
    facts.environment = {"CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  } else {
    facts.gpus_per_node = std::max(ranks, facts.cpus_per_node);
    facts.gpu_memory_bytes = facts.node_memory_bytes / ranks;
    for (int i = 0; i < facts.gpus_per_node; ++i) facts.gpus.push_back({i, "", "", 0, i});
  }
  return facts;
}

}  // namespace holdfast::launcher

#include "launcher/health/this_machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "launcher/health/local_site.hpp"
#include "src/base/as_size.hpp"
#include "src/base/env.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

/// CPUs that this process may use.
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

int gpus_named(const std::string& list) {
  if (list.empty() || list.front() == '-') return 0;  // "-1" hides all
  return 1 + static_cast<int>(std::ranges::count(list, ','));
}

/// CUDA knows which ones they are, and numbers those that it sees from 0 on.
void keep_gpus(LocalSite& site, int count) {
  site.gpus = std::min(site.gpus, count);
  site.gpu_facts.resize(std::min(site.gpu_facts.size(), as_size(count)));
}

}  // namespace

bool has_gpus(const config::ClusterFacts& machine) { return machine.gpu != "none"; }

config::ClusterFacts facts_of_this_machine(const std::string& node, int ranks) {
  LocalSite site = probe_local_site({}, node, "");
  if (const auto visible = env::get("CUDA_VISIBLE_DEVICES")) keep_gpus(site, gpus_named(*visible));
  config::ClusterFacts facts;
  facts.name = local_machine;
  facts.description = "the machine of a local run";
  facts.cpus_per_node = cpus_here();
  facts.node_memory_bytes = memory_here();
  facts.node_shm_bytes = site.shm_bytes;
  facts.shared = {"/", "/tmp", "/var/tmp", "/dev/shm", "/run"};  // also where each machine has its own
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

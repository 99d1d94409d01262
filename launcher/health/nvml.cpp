#include "launcher/health/nvml.hpp"

#include "src/nvml/library.hpp"

namespace holdfast::launcher {
namespace {

void read_memory(const nvml::Library& library, nvml::Gpu device, GpuState& gpu) {
  gpu.ecc = library.ecc(device);
  gpu.uncorrected = library.errors(device, nvml::Error::uncorrected, nvml::Span::since_load);
  if (const auto sram = library.sram_errors(device)) gpu.sram_exceeded = sram->threshold_exceeded != 0;
  if (const auto rows = library.remap(device))
    gpu.remap = GpuState::Remap{static_cast<int>(rows->corrected), static_cast<int>(rows->uncorrected),
                                rows->pending != 0, rows->failed != 0};
  if (const auto memory = library.memory(device)) {
    gpu.memory_bytes = memory->total;
    gpu.memory_used_bytes = memory->used;
  }
}

void read_links(const nvml::Library& library, nvml::Gpu device, GpuState& gpu) {
  gpu.pcie_width = library.pcie_width(device);
  gpu.pcie_width_max = library.pcie_width_max(device);
  gpu.pcie_gen = library.pcie_gen(device);
  gpu.pcie_gen_max = library.pcie_gen_max(device);
  const auto links = library.links(device);
  if (links.up > 0) gpu.links_up = links.up;
  if (links.down > 0) gpu.links_down = links.down;
  if (const auto fabric = library.fabric(device)) {
    gpu.fabric = fabric->state;
    gpu.fabric_status = fabric->status;
  }
}

void read_speed(const nvml::Library& library, nvml::Gpu device, GpuState& gpu) {
  gpu.slowed = library.slowdowns(device);
  gpu.slowdown_c = library.slowdown_celsius(device);
  gpu.sm_clock_max_mhz = library.sm_clock_max_mhz(device);
  gpu.power_limit_mw = library.power_limit_mw(device);
  gpu.power_default_mw = library.power_default_mw(device);
}

GpuState read_gpu(const nvml::Library& library, int index) {
  GpuState gpu;
  gpu.index = index;
  nvml::Result result = nvml::success;
  const auto device = library.by_index(static_cast<unsigned>(index), &result);
  if (!device) {
    gpu.lost = library.words(result);
    return gpu;
  }
  gpu.name = library.name(*device);
  gpu.uuid = library.uuid(*device);
  if (const auto pci = library.pci(*device)) gpu.pci = pci->id;
  gpu.temperature_c = library.celsius(*device, &result);  // every driver tells it, of every GPU that answers
  if (result == nvml::gpu_is_lost || result == nvml::reset_required) {
    gpu.lost = library.words(result);
    return gpu;
  }
  read_memory(library, *device, gpu);
  read_links(library, *device, gpu);
  read_speed(library, *device, gpu);
  gpu.recovery = library.recovery_action(*device);
  gpu.mig = library.mig(*device);
  gpu.compute_mode = library.compute_mode(*device);
  return gpu;
}

}  // namespace

NvmlFacts read_nvml(const std::string& name) {
  NvmlFacts facts;
  const nvml::Library library(name);
  facts.found = library.found();
  facts.why = library.absent();
  facts.usable = facts.why.empty();
  if (!facts.usable) return facts;
  facts.driver = library.driver();
  nvml::Result result = nvml::success;
  const int count = library.count(&result).value_or(0);
  if (result != nvml::success) facts.why = library.words(result);
  for (int i = 0; i < count; ++i) facts.gpus.push_back(read_gpu(library, i));
  return facts;
}

}  // namespace holdfast::launcher

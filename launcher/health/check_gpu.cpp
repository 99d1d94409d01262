// check_gpus() asks the driver through NVML and counts the GPUs on the PCI bus; gpu_findings() judges that,
// and reads nothing. If NVML cannot be used, that is the only finding. Else the driver's version and the
// number of GPUs come first, then one check after the other over the GPUs that the driver reaches; a lost one
// is in the count alone.
//
// In each check a Tally joins what GPUs show into one finding, with the worst fitness. GPUs are also compared
// with each other: clocks and PCIe generation with those of the first, NVLinks with the GPU that has most. A
// check whose values no GPU reports gives no finding.
#include "launcher/health/check_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/base/files.hpp"
#include "src/base/units.hpp"
#include "src/nvml/library.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr std::int64_t left_over_bytes = std::int64_t{2}
                                         << 30;  // a driver keeps less than 1 GiB of an idle GPU

/// The results of one check for all GPUs, as one finding: the worst result, and the GPUs that have it.
class Tally {
 public:
  Tally(std::string check, std::string advice) : check_(std::move(check)), advice_(std::move(advice)) {}

  void checked() { ++checked_; }
  void add(Fitness fitness, int gpu, const std::string& says) {
    if (fitness == Fitness::critical) worst_ = Fitness::critical;
    if (!says_.empty()) says_ += "; ";
    says_ += fmt::format("GPU {} {}", gpu, says);
  }
  /// No finding when no GPU reports the value.
  void finish(std::vector<Finding>& findings, const std::string& good) const {
    if (!says_.empty())
      findings.push_back({check_, worst_, says_, advice_});
    else if (checked_ > 0)
      findings.push_back({check_, Fitness::ok, good, ""});
  }

 private:
  std::string check_, advice_, says_;
  int checked_ = 0;
  Fitness worst_ = Fitness::warning;
};

void check_ecc(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  Tally tally(
      "gpu.ecc",
      "SRAM threshold: run NVIDIA's field diagnostics and have it replaced (CONTACT_SUPPORT). Else reset "
      "the GPU after the job (RESET_GPU)");
  for (const auto& gpu : gpus) {
    if (gpu.ecc || gpu.uncorrected || gpu.sram_exceeded) tally.checked();
    if (gpu.ecc == false) tally.add(Fitness::warning, gpu.index, "has ECC switched off");
    if (gpu.sram_exceeded == true)
      tally.add(Fitness::critical, gpu.index, "has exceeded the threshold of uncorrected SRAM errors");
    else if (gpu.uncorrected.value_or(0) > 0)
      tally.add(Fitness::warning, gpu.index,
                fmt::format("had {} uncorrected memory errors", *gpu.uncorrected));
  }
  tally.finish(out, "no uncorrected memory errors");
}

void check_remap(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  Tally tally("gpu.remap",
              "Pending: reset the GPU after the job (RESET_GPU). Failed: have it replaced (CONTACT_SUPPORT)");
  for (const auto& gpu : gpus) {
    if (!gpu.remap) continue;
    tally.checked();
    if (gpu.remap->failed)
      tally.add(Fitness::critical, gpu.index, "could not remap a row");
    else if (gpu.remap->pending)
      tally.add(Fitness::warning, gpu.index, "has a row remap pending");
  }
  tally.finish(out, "no row remap pending or failed");
}

void check_recovery(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  static constexpr std::array words = {"nothing", "a reset", "a reboot of the node",
                                       "its peer traffic drained", "to be drained and reset"};
  Tally tally("gpu.recovery", "Drain the node and do what the driver requests");
  for (const auto& gpu : gpus) {
    if (!gpu.recovery) continue;
    tally.checked();
    if (*gpu.recovery > 0)
      tally.add(Fitness::critical, gpu.index,
                "needs " + std::string(*gpu.recovery < static_cast<int>(words.size())
                                           ? words[*gpu.recovery]
                                           : "an action that this version does not know"));
  }
  tally.finish(out, "the driver requests no reset");
}

void check_slowed(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  struct Reason {
    std::uint64_t bit;
    Fitness fitness;
    const char* says;
  };
  static constexpr std::array reasons = {
      Reason{nvml::hardware_slowdown, Fitness::critical, "is slowed down by its hardware"},
      Reason{nvml::thermal_by_hardware, Fitness::critical, "is slowed down by its hardware for heat"},
      Reason{nvml::power_brake, Fitness::critical, "is slowed down by the power supply's brake"},
      Reason{nvml::thermal_by_driver, Fitness::warning, "is slowed down by its driver for heat"}};
  Tally tally("gpu.clocks", "Check cooling, power supplies and power limits");
  for (const auto& gpu : gpus) {
    if (gpu.slowed || gpu.sm_clock_max_mhz) tally.checked();
    for (const auto& reason : reasons)
      if (gpu.slowed.value_or(0) & reason.bit) tally.add(reason.fitness, gpu.index, reason.says);
    if (gpu.temperature_c && gpu.slowdown_c && *gpu.slowdown_c > 0 &&
        *gpu.temperature_c + 5 >= *gpu.slowdown_c)
      tally.add(Fitness::warning, gpu.index,
                fmt::format("is at {} C and slows down at {} C", *gpu.temperature_c, *gpu.slowdown_c));
    if (gpu.power_limit_mw && gpu.power_default_mw && *gpu.power_limit_mw < *gpu.power_default_mw)
      tally.add(Fitness::warning, gpu.index,
                fmt::format("may take {} W instead of {} W", *gpu.power_limit_mw / 1000,
                            *gpu.power_default_mw / 1000));
    if (gpu.sm_clock_max_mhz && gpus.front().sm_clock_max_mhz &&
        *gpu.sm_clock_max_mhz != *gpus.front().sm_clock_max_mhz)
      tally.add(Fitness::warning, gpu.index,
                fmt::format("reaches {} MHz, GPU {} {} MHz", *gpu.sm_clock_max_mhz, gpus.front().index,
                            *gpus.front().sm_clock_max_mhz));
  }
  tally.finish(out, "no GPU is slowed down");
}

void check_pcie(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  Tally tally("gpu.pcie", "Reseat the GPU board, or replace its riser");
  std::string good;
  for (const auto& gpu : gpus) {
    if (!gpu.pcie_width || !gpu.pcie_width_max) continue;
    tally.checked();
    // The generation falls while a GPU is idle, to save power; the width does not.
    good = fmt::format("x{} on every GPU", *gpu.pcie_width);
    if (gpu.pcie_gen_max) good += fmt::format(", generation {} at most", *gpu.pcie_gen_max);
    if (*gpu.pcie_width < *gpu.pcie_width_max)
      tally.add(Fitness::critical, gpu.index,
                fmt::format("has {} of {} PCIe lanes", *gpu.pcie_width, *gpu.pcie_width_max));
    if (gpu.pcie_gen_max && gpus.front().pcie_gen_max && *gpu.pcie_gen_max < *gpus.front().pcie_gen_max)
      tally.add(Fitness::warning, gpu.index,
                fmt::format("is limited to PCIe generation {}", *gpu.pcie_gen_max));
  }
  tally.finish(out, good);
}

void check_nvlink(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  Tally tally("gpu.nvlink", "Restart the fabric manager; then reset all GPUs of the node");
  int most = 0, up = 0;
  for (const auto& gpu : gpus) {
    most = std::max(most, gpu.links_up.value_or(0) + gpu.links_down.value_or(0));
    up += gpu.links_up.value_or(0);
  }
  if (most > 0 && up == 0) {  // as on boards without bridges
    out.push_back(
        {"gpu.nvlink", Fitness::warning, "no NVLink is up on any GPU", "Are these boards connected?"});
    return;
  }
  for (const auto& gpu : gpus) {
    if (!gpu.links_up && !gpu.links_down) continue;
    tally.checked();
    if (gpu.links_up.value_or(0) < most)
      tally.add(Fitness::critical, gpu.index,
                fmt::format("has {} of {} NVLinks", gpu.links_up.value_or(0), most));
    if (gpu.fabric == 1 || gpu.fabric == 2)
      tally.add(Fitness::critical, gpu.index, "is not registered with the NVSwitch fabric");
    if (gpu.fabric == 3 && gpu.fabric_status.value_or(0) != 0)
      tally.add(Fitness::critical, gpu.index, "was refused by the NVSwitch fabric");
  }
  tally.finish(out, fmt::format("{} NVLinks up on every GPU", most));
}

void check_use(const std::vector<GpuState>& gpus, std::vector<Finding>& out) {
  Tally tally("gpu.free", "End processes of other jobs (nvidia-smi lists them)");
  for (const auto& gpu : gpus) {
    tally.checked();
    if (gpu.compute_mode == 2)
      tally.add(Fitness::critical, gpu.index, "does not accept programs (compute mode prohibited)");
    if (gpu.mig == true) tally.add(Fitness::critical, gpu.index, "is divided into MIG instances");
    if (gpu.memory_used_bytes.value_or(0) > left_over_bytes)
      tally.add(Fitness::warning, gpu.index, fmt::format("has {} in use", size_text(*gpu.memory_used_bytes)));
  }
  tally.finish(out, "no memory in use, no MIG");
}

Finding count_finding(const NvmlFacts& facts, int on_bus, const Expected& expected) {
  const int there = static_cast<int>(
      std::count_if(facts.gpus.begin(), facts.gpus.end(), [](const auto& gpu) { return gpu.lost.empty(); }));
  const int wanted = expected.gpus() ? expected.cluster->gpus_per_node : on_bus;
  std::string says = fmt::format("{} of {} GPUs", there, wanted);
  const auto named =
      std::find_if(facts.gpus.begin(), facts.gpus.end(), [](const auto& gpu) { return !gpu.name.empty(); });
  if (named != facts.gpus.end()) says += ", " + named->name;
  for (const auto& gpu : facts.gpus)
    if (!gpu.lost.empty()) says += fmt::format("; GPU {}: {}", gpu.index, gpu.lost);
  if (there < wanted)
    return {"gpu.count", Fitness::critical, says,
            there < on_bus || on_bus == wanted
                ? "A GPU fell off the bus, or the job did not get all? See the kernel's log"
                : "The PCI bus lists fewer, too: a hardware failure?"};
  return {"gpu.count", Fitness::ok, says, ""};
}

}  // namespace

int gpus_on_bus(const Roots& roots) {
  int count = 0;
  const auto devices = roots.sys / "bus/pci/devices";
  for (const auto& name : files::list(devices)) {
    if (read_line(devices / name / "vendor") != "0x10de") continue;
    const auto kind = read_line(devices / name / "class").value_or("");
    count += kind.starts_with("0x0302") || kind.starts_with("0x0300");
  }
  return count;
}

std::vector<Finding> gpu_findings(const NvmlFacts& facts, int on_bus, const Expected& expected) {
  const bool wanted = expected.gpus();
  if (!facts.usable) {
    if (!wanted && on_bus == 0)
      return {{"gpu", Fitness::unknown,
               "no NVIDIA GPU on the bus and none named by a cluster file: not checked", ""}};
    return {{"gpu", wanted ? Fitness::critical : Fitness::warning,
             fmt::format("{} GPUs on the PCI bus, and NVIDIA's management library {} ({})", on_bus,
                         facts.found ? "does not start" : "is not installed", facts.why),
             "Is the driver loaded, and the same version as its libraries?"}};
  }
  std::vector<Finding> out = {{"gpu.driver", Fitness::ok, "version " + facts.driver, ""},
                              count_finding(facts, on_bus, expected)};
  std::vector<GpuState> reached;
  for (const auto& gpu : facts.gpus)
    if (gpu.lost.empty()) reached.push_back(gpu);
  if (reached.empty()) return out;
  check_ecc(reached, out);
  check_remap(reached, out);
  check_recovery(reached, out);
  check_slowed(reached, out);
  check_pcie(reached, out);
  check_nvlink(reached, out);
  check_use(reached, out);
  return out;
}

std::vector<Finding> check_gpus(const Roots& roots, const Expected& expected) {
  return gpu_findings(read_nvml(roots.nvml), gpus_on_bus(roots), expected);
}

}  // namespace holdfast::launcher

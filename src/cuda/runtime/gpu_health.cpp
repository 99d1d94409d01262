#include "src/cuda/runtime/gpu_health.hpp"

#include <fmt/core.h>

#include <array>

namespace holdfast::cuda {
namespace {

struct Slowdown {
  std::uint64_t bit;
  const char* name;
};
// Idle clocks, a user's own limit and the ordinary power cap are not among them.
constexpr std::array<Slowdown, 4> slowdowns{{{nvml::hardware_slowdown, "hardware slowdown"},
                                             {nvml::thermal_by_driver, "thermal slowdown by the driver"},
                                             {nvml::thermal_by_hardware, "thermal slowdown by the hardware"},
                                             {nvml::power_brake, "power brake"}}};

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const auto& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

std::optional<int> watts(std::optional<int> milliwatts) {
  return milliwatts ? std::optional(*milliwatts / 1000) : std::nullopt;
}

}  // namespace

GpuHealth health_of(const nvml::Library& library, const std::string& bus) {
  GpuHealth health;
  const auto gpu = library.by_bus(bus);
  if (!gpu) return health;
  if (const auto memory = library.memory(*gpu)) {
    health.memory_bytes = memory->total;
    health.memory_used_bytes = memory->used;
  }
  health.clock_mhz = library.sm_clock_mhz(*gpu);
  health.largest_clock_mhz = library.sm_clock_max_mhz(*gpu);
  health.slowdowns = library.slowdowns(*gpu);
  health.watts = watts(library.power_mw(*gpu));
  health.limit_watts = watts(library.power_limit_mw(*gpu));
  health.celsius = library.celsius(*gpu);
  health.corrected = library.errors(*gpu, nvml::Error::corrected, nvml::Span::since_load);
  health.uncorrected = library.errors(*gpu, nvml::Error::uncorrected, nvml::Span::since_load);
  health.slices = library.mig(*gpu);
  const auto links = library.links(*gpu);
  health.links = links.up + links.down;
  health.links_down = links.down;
  return health;
}

std::string slowdown_names(std::uint64_t bits) {
  std::vector<std::string> names;
  for (const auto& slowdown : slowdowns)
    if (bits & slowdown.bit) names.emplace_back(slowdown.name);
  return join(names);
}

std::vector<std::string> warnings(const GpuHealth& health) {
  std::vector<std::string> out;
  if (health.uncorrected.value_or(0) > 0)
    out.push_back(
        fmt::format("its memory had {} error{} that could not be corrected since the driver was loaded",
                    *health.uncorrected, *health.uncorrected == 1 ? "" : "s"));
  if (const auto names = slowdown_names(health.slowdowns.value_or(0)); !names.empty())
    out.push_back(fmt::format("it is slowed down ({}{})", names,
                              health.celsius ? fmt::format(", {} C", *health.celsius) : ""));
  // All of them are down on a board that has no bridge.
  if (health.links_down > 0 && health.links_down < health.links)
    out.push_back(
        fmt::format("{} of its {} NVLinks are down or not connected", health.links_down, health.links));
  return out;
}

std::string to_text(const GpuHealth& health) {
  std::vector<std::string> parts;
  const auto of = [&](const std::optional<int>& value, const std::optional<int>& largest, const char* unit) {
    if (value && largest)
      parts.push_back(fmt::format("{} of {} {}", *value, *largest, unit));
    else if (value)
      parts.push_back(fmt::format("{} {}", *value, unit));
  };
  of(health.clock_mhz, health.largest_clock_mhz, "MHz");
  of(health.watts, health.limit_watts, "W");
  of(health.celsius, std::nullopt, "C");
  if (health.slices.value_or(false)) parts.push_back("MIG");
  return join(parts);
}

}  // namespace holdfast::cuda

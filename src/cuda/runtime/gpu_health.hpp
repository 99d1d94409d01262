#pragma once
// What NVIDIA's management library says of a rank's GPU. What it does not say is not known, and nothing fails
// for that.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/nvml/library.hpp"

namespace holdfast::cuda {

/// One GPU, now.
struct GpuHealth {
  std::optional<std::int64_t> memory_bytes, memory_used_bytes;  ///< of the whole GPU, by all processes
  std::optional<int> clock_mhz, largest_clock_mhz;              ///< of the multiprocessors
  std::optional<std::uint64_t> slowdowns;  ///< bits: why the clock is not higher, see slowdown_names()
  std::optional<int> watts, limit_watts;
  std::optional<int> celsius;
  std::optional<std::int64_t> corrected, uncorrected;  ///< errors of its memory since the driver was loaded
  std::optional<bool> slices;                          ///< divided into MIG slices
  int links = 0, links_down = 0;                       ///< NVLinks
};

/// `bus`: of the whole GPU, also for a slice: "0000:3b:00.0".
GpuHealth health_of(const nvml::Library& library, const std::string& bus);
/// "thermal slowdown, power brake"; only those that say that something is wrong.
std::string slowdown_names(std::uint64_t slowdowns);
/// What a person should know before a run is given to this GPU, a sentence each; empty when all is well.
std::vector<std::string> warnings(const GpuHealth& health);
/// "1980 of 1980 MHz, 412 of 700 W, 54 C": what is known, for a line of the log; "" when nothing is.
std::string to_text(const GpuHealth& health);

}  // namespace holdfast::cuda

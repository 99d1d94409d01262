#pragma once
// What NVIDIA's management library says of a GPU. It is loaded while running (it comes with the driver, its
// header with neither driver nor toolkit) and everything is optional: what it does not say is not known, and
// nothing fails for that.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cuda {

/// One GPU, now.
struct GpuHealth {
  std::optional<std::int64_t> memory_bytes, memory_used_bytes;  ///< of the whole GPU, by all processes
  std::optional<int> clock_mhz, largest_clock_mhz;              ///< of the multiprocessors
  std::optional<std::uint64_t> slowdowns;  ///< bits: why the clock is not higher, see slowdown_names()
  std::optional<int> watts, limit_watts;
  std::optional<int> celsius;
  std::optional<std::uint64_t> corrected, uncorrected;  ///< errors of its memory since the driver was loaded
  std::optional<bool> slices;                           ///< divided into MIG slices
  int links = 0, links_down = 0;                        ///< NVLinks
};

class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Why nothing is known; "" when the library answers.
  const std::string& absent() const { return absent_; }
  /// "580.65.06"; "" when not known.
  std::string driver() const;
  /// GPUs that this process may see, slices not counted; -1 when not known.
  int count() const;

  // `bus`: of the whole GPU, also for a slice: "0000:3b:00.0"
  GpuHealth health(const std::string& bus) const;
  /// Logical CPUs near the GPU, ascending; empty when not known.
  std::vector<int> near_cpus(const std::string& bus) const;

 private:
  struct Functions;
  void* find(const std::string& bus) const;  // null: no such GPU

  void* library_ = nullptr;
  std::unique_ptr<Functions> functions_;
  std::string absent_;
};

/// "thermal slowdown, power brake"; only those that say that something is wrong.
std::string slowdown_names(std::uint64_t slowdowns);
/// What a person should know before a run is given to this GPU, a sentence each; empty when all is well.
std::vector<std::string> warnings(const GpuHealth& health);
/// "1980 of 1980 MHz, 412 of 700 W, 54 C": what is known, for a line of the log; "" when nothing is.
std::string to_text(const GpuHealth& health);

}  // namespace holdfast::cuda

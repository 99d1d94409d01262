#pragma once
// Reads the state of this node's GPUs from NVIDIA's management library, as plain data. The library is loaded
// at run time, so that `holdfast` runs where there is none.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// One GPU. Values that its driver does not report are absent.
struct GpuState {
  int index = 0;
  std::string name, uuid, pci;  ///< pci: "00000000:18:00.0"
  std::string lost;  ///< the library's error when the GPU cannot be reached; the rest is then absent

  std::optional<bool> ecc, mig;
  std::optional<std::int64_t> uncorrected;  ///< memory errors since the driver was loaded
  std::optional<bool> sram_exceeded;        ///< too many errors in its SRAM, by NVIDIA's threshold
  struct Remap {
    int corrected = 0, uncorrected = 0;  ///< rows
    bool pending = false, failed = false;
  };
  std::optional<Remap> remap;
  std::optional<int> recovery;  ///< 0 none, 1 reset, 2 reboot, 3 drain peer traffic, 4 drain and reset
  std::optional<std::uint64_t> slowed;  ///< bits of nvmlClocksEventReasons
  std::optional<int> temperature_c, slowdown_c;
  std::optional<int> pcie_width, pcie_width_max, pcie_gen, pcie_gen_max;
  std::optional<int> sm_clock_max_mhz, power_limit_mw, power_default_mw;
  std::optional<int> links_up, links_down;  ///< NVLinks
  std::optional<int> fabric;  ///< registration with the NVSwitch fabric: 0 not supported ... 3 complete
  std::optional<int> fabric_status;  ///< NVML's error code of it
  std::optional<std::int64_t> memory_bytes, memory_used_bytes;
  std::optional<int> compute_mode;  ///< 2: no program may use it
};

struct NvmlFacts {
  bool usable = false;  ///< the library was found and has started
  bool found = false;   ///< the library was found
  std::string why;      ///< when not usable
  std::string driver;   ///< version
  std::vector<GpuState> gpus;
};

/// `library`: libnvidia-ml.so.1, or a path. Hangs if the driver hangs.
NvmlFacts read_nvml(const std::string& library);

}  // namespace holdfast::launcher

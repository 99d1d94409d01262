#pragma once
// NVIDIA's management library (NVML), loaded while running: it comes with the driver, its header with neither
// driver nor toolkit. Every call is optional: what an older library does not have, or a GPU does not tell, is
// nothing. Any call may hang where a driver hangs; callers have their own deadlines.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::nvml {

inline constexpr const char* default_library = "libnvidia-ml.so.1";

using Gpu = void*;   ///< nvmlDevice_t
using Result = int;  ///< nvmlReturn_t
inline constexpr Result success = 0, invalid_argument = 2, not_supported = 3, gpu_is_lost = 15,
                        reset_required = 16;

/// Bits of slowdowns() (nvmlClocksEventReasons): what slows the clocks. Others mean nothing bad.
inline constexpr std::uint64_t hardware_slowdown = 0x08, thermal_by_driver = 0x20, thermal_by_hardware = 0x40,
                               power_brake = 0x80;

enum class Error { corrected = 0, uncorrected = 1 };
enum class Span { since_load = 0, of_its_life = 1 };  ///< "load": of the driver

struct Pci {
  char legacy_id[16] = {};
  unsigned domain = 0, bus = 0, device = 0, ids = 0, subsystem = 0;
  char id[32] = {};  ///< "00000000:18:00.0"
};
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;  ///< bytes
};
struct Remap {
  unsigned corrected = 0, uncorrected = 0;  ///< rows
  unsigned pending = 0, failed = 0;
};
/// nvmlEccSramErrorStatus_v1_t
struct SramErrors {
  unsigned version = 0;
  unsigned long long parity_ever = 0, uncorrected_ever = 0, corrected_ever = 0;
  unsigned long long parity = 0, uncorrected = 0, corrected = 0;  ///< since the driver was loaded
  unsigned long long l2_ever = 0, sm_ever = 0, pcie_ever = 0, micro_controller_ever = 0, other_ever = 0;
  unsigned threshold_exceeded = 0;  ///< NVIDIA's field diagnostics would fail
};
struct Fabric {
  unsigned char cluster[16] = {};
  Result status = success;
  unsigned clique = 0;
  unsigned char state = 0;      ///< registration with the NVSwitches: 0 not supported ... 3 complete
  unsigned char room[39] = {};  ///< for a library that fills in more
};
struct FieldValue {
  unsigned field = 0, scope = 0;
  long long at = 0, latency = 0;
  unsigned type = 0;
  Result result = success;
  union {
    unsigned number;
    unsigned long long wide;
  } value{};
};
inline constexpr unsigned recovery_action_field = 230;  ///< NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
/// NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and ..._RX, in KiB; scope: a link, or all of them.
inline constexpr unsigned link_sent_field = 138, link_received_field = 139, all_links = ~0U;
inline constexpr unsigned link_speed_field = 164;  ///< NVML_FI_DEV_NVLINK_GET_SPEED; scope: the link
struct Event {
  Gpu gpu = nullptr;
  unsigned long long type = 0, data = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
inline constexpr unsigned long long double_bit_error = 0x2, xid_critical = 0x8;  ///< Event::type

struct Links {
  int up = 0, down = 0;
  bool all_answered = true;  ///< false: the GPU does not answer for some
};

class Library {
 public:
  /// Loads and starts it.
  explicit Library(const std::string& name = default_library);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool found() const { return handle_ != nullptr; }
  /// Why it answers nothing; "" when it does.
  const std::string& absent() const { return absent_; }
  /// The library's words for a result.
  std::string words(Result result) const;

  /// "580.65.06"; "" when not known.
  std::string driver() const;
  /// GPUs that this process may see, MIG slices not counted.
  std::optional<int> count(Result* result = nullptr) const;
  std::optional<Gpu> by_index(unsigned index, Result* result = nullptr) const;
  /// `bus`: of the whole GPU, also for a slice: "0000:3b:00.0".
  std::optional<Gpu> by_bus(const std::string& bus) const;

  std::string name(Gpu gpu) const { return text("nvmlDeviceGetName", gpu); }
  std::string uuid(Gpu gpu) const { return text("nvmlDeviceGetUUID", gpu); }
  std::optional<Pci> pci(Gpu gpu) const;
  std::optional<Memory> memory(Gpu gpu) const;
  std::optional<std::int64_t> errors(Gpu gpu, Error kind, Span span) const;
  std::optional<Remap> remap(Gpu gpu) const;
  /// Some drivers tell it to root alone.
  std::optional<SramErrors> sram_errors(Gpu gpu) const;
  std::optional<bool> ecc(Gpu gpu) const { return mode("nvmlDeviceGetEccMode", gpu); }
  std::optional<bool> mig(Gpu gpu) const { return mode("nvmlDeviceGetMigMode", gpu); }
  std::optional<std::uint64_t> slowdowns(Gpu gpu, Result* result = nullptr) const;
  std::optional<int> celsius(Gpu gpu, Result* result = nullptr) const;
  std::optional<int> slowdown_celsius(Gpu gpu) const;
  std::optional<int> sm_clock_mhz(Gpu gpu) const;
  std::optional<int> sm_clock_max_mhz(Gpu gpu) const;
  std::optional<int> power_mw(Gpu gpu) const { return number("nvmlDeviceGetPowerUsage", gpu); }
  std::optional<int> power_limit_mw(Gpu gpu) const { return number("nvmlDeviceGetEnforcedPowerLimit", gpu); }
  std::optional<int> power_default_mw(Gpu gpu) const {
    return number("nvmlDeviceGetPowerManagementDefaultLimit", gpu);
  }
  std::optional<int> pcie_width(Gpu gpu) const { return number("nvmlDeviceGetCurrPcieLinkWidth", gpu); }
  std::optional<int> pcie_width_max(Gpu gpu) const { return number("nvmlDeviceGetMaxPcieLinkWidth", gpu); }
  std::optional<int> pcie_gen(Gpu gpu) const { return number("nvmlDeviceGetCurrPcieLinkGeneration", gpu); }
  std::optional<int> pcie_gen_max(Gpu gpu) const { return number("nvmlDeviceGetMaxPcieLinkGeneration", gpu); }
  std::optional<int> compute_mode(Gpu gpu) const { return number("nvmlDeviceGetComputeMode", gpu); }
  /// 0 none, 1 reset, 2 reboot, 3 drain peer traffic, 4 drain and reset.
  std::optional<int> recovery_action(Gpu gpu) const;
  Links links(Gpu gpu) const;
  /// MB/s of its NVLinks that are up and tell it, by link.
  std::map<unsigned, int> link_speeds(Gpu gpu) const;
  /// Payload over all its NVLinks since they were trained, sent and received.
  std::optional<std::int64_t> link_bytes(Gpu gpu) const;
  std::optional<Fabric> fabric(Gpu gpu) const;
  /// Logical CPUs near the GPU, ascending; empty when not known.
  std::vector<int> near_cpus(Gpu gpu) const;

  /// From now on Xids and double-bit errors of the GPU come with next_event(), as far as its driver tells
  /// them.
  void listen(Gpu gpu);
  /// Does not wait.
  std::optional<Event> next_event();

 private:
  template <class... Arguments>
  Result call(const char* function, Arguments... arguments) const;
  std::optional<int> number(const char* function, Gpu gpu) const;
  std::optional<bool> mode(const char* function, Gpu gpu) const;
  std::string text(const char* function, Gpu gpu) const;

  void* handle_ = nullptr;
  void* events_ = nullptr;
  std::string absent_;
};

}  // namespace holdfast::nvml

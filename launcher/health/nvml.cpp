#include "launcher/health/nvml.hpp"

#include <dlfcn.h>

#include <array>

namespace holdfast::launcher {
namespace {

// The part of the library's C interface that is used here (NVIDIA, NVML API reference). Numbers and layouts
// are stable: new versions of a struct get new function names.
using Device = void*;
using Code = int;  // nvmlReturn_t; 0: success
constexpr Code gpu_is_lost = 15, reset_required = 16;
constexpr unsigned uncorrected_errors = 1, since_load = 0, of_its_life = 1;
constexpr unsigned sensor_of_gpu = 0, slowdown_threshold = 1, clock_of_sm = 1;
constexpr unsigned field_recovery_action = 230;
constexpr unsigned max_links = 18;

struct Memory {
  unsigned long long total, free, used;
};
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char id[32];
};
struct FieldValue {
  unsigned field, scope;
  long long at, latency;
  unsigned type;
  Code code;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};
struct Fabric {
  unsigned char cluster[16];
  Code status;
  unsigned clique;
  unsigned char state;
  unsigned char room[39];  // a newer library may fill in more
};

class Library {
 public:
  explicit Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) why_ = ::dlerror();
  }
  Library(const Library&) = delete;
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  bool found() const { return handle_ != nullptr; }
  const std::string& why() const { return why_; }

  /// Calls a function by name; not supported when this version of the library has none.
  template <class... Arguments>
  Code call(const char* name, Arguments... arguments) const {
    using Function = Code (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(::dlsym(handle_, name));
    return function == nullptr ? 3 : function(arguments...);
  }
  std::string error_text(Code code) const {
    using Function = const char* (*)(Code);
    const auto function = reinterpret_cast<Function>(::dlsym(handle_, "nvmlErrorString"));
    return function == nullptr ? "error " + std::to_string(code) : function(code);
  }

 private:
  void* handle_;
  std::string why_;
};

std::optional<int> ask(const Library& nvml, const char* name, Device device) {
  unsigned value = 0;
  if (nvml.call(name, device, &value) != 0) return std::nullopt;
  return static_cast<int>(value);
}

/// The same with one more argument in the middle: a sensor or a clock.
std::optional<int> ask(const Library& nvml, const char* name, Device device, unsigned which) {
  unsigned value = 0;
  if (nvml.call(name, device, which, &value) != 0) return std::nullopt;
  return static_cast<int>(value);
}

/// The first of a pair: the present mode, not the pending one.
std::optional<bool> ask_mode(const Library& nvml, const char* name, Device device) {
  unsigned now = 0, pending = 0;
  if (nvml.call(name, device, &now, &pending) != 0) return std::nullopt;
  return now != 0;
}

std::optional<std::int64_t> errors(const Library& nvml, Device device, unsigned span) {
  unsigned long long count = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, uncorrected_errors, span, &count) != 0)
    return std::nullopt;
  return static_cast<std::int64_t>(count);
}

std::string text_of(const Library& nvml, const char* name, Device device) {
  std::array<char, 97> text{};
  const unsigned room = text.size() - 1;
  return nvml.call(name, device, text.data(), room) == 0 ? text.data() : "";
}

void read_memory(const Library& nvml, Device device, GpuFacts& gpu) {
  gpu.ecc = ask_mode(nvml, "nvmlDeviceGetEccMode", device);
  gpu.uncorrected = errors(nvml, device, since_load);
  gpu.uncorrected_ever = errors(nvml, device, of_its_life);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending, &failed) == 0)
    gpu.remap = GpuFacts::Remap{static_cast<int>(corrected), static_cast<int>(uncorrected), pending != 0,
                                failed != 0};
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == 0) {
    gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
    gpu.memory_used_bytes = static_cast<std::int64_t>(memory.used);
  }
}

void read_links(const Library& nvml, Device device, GpuFacts& gpu) {
  gpu.pcie_width = ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", device);
  gpu.pcie_width_max = ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", device);
  gpu.pcie_gen = ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", device);
  gpu.pcie_gen_max = ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", device);
  for (unsigned link = 0; link < max_links; ++link) {
    const auto active = ask(nvml, "nvmlDeviceGetNvLinkState", device, link);
    if (!active) continue;
    auto& count = *active ? gpu.links_up : gpu.links_down;
    count = count.value_or(0) + 1;
  }
  Fabric fabric{};
  if (nvml.call("nvmlDeviceGetGpuFabricInfo", device, &fabric) == 0)
    gpu.fabric = fabric.state, gpu.fabric_status = fabric.status;
}

void read_speed(const Library& nvml, Device device, GpuFacts& gpu) {
  unsigned long long reasons = 0;
  if (nvml.call("nvmlDeviceGetCurrentClocksEventReasons", device, &reasons) == 0 ||
      nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) == 0)
    gpu.slowed = reasons;
  gpu.temperature_c = ask(nvml, "nvmlDeviceGetTemperature", device, sensor_of_gpu);
  gpu.slowdown_c = ask(nvml, "nvmlDeviceGetTemperatureThreshold", device, slowdown_threshold);
  gpu.sm_clock_max_mhz = ask(nvml, "nvmlDeviceGetMaxClockInfo", device, clock_of_sm);
  gpu.power_limit_mw = ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", device);
  gpu.power_default_mw = ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", device);
}

GpuFacts read_gpu(const Library& nvml, unsigned index) {
  GpuFacts gpu;
  gpu.index = static_cast<int>(index);
  Device device = nullptr;
  if (const Code code = nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device); code != 0) {
    gpu.lost = nvml.error_text(code);
    return gpu;
  }
  gpu.name = text_of(nvml, "nvmlDeviceGetName", device);
  gpu.uuid = text_of(nvml, "nvmlDeviceGetUUID", device);
  Pci pci{};
  if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci) == 0) gpu.pci = pci.id;
  unsigned temperature = 0;  // every driver reports it for every GPU that answers
  const Code code = nvml.call("nvmlDeviceGetTemperature", device, sensor_of_gpu, &temperature);
  if (code == gpu_is_lost || code == reset_required) {
    gpu.lost = nvml.error_text(code);
    return gpu;
  }
  read_memory(nvml, device, gpu);
  read_links(nvml, device, gpu);
  read_speed(nvml, device, gpu);
  FieldValue field{};
  field.field = field_recovery_action;
  if (nvml.call("nvmlDeviceGetFieldValues", device, 1, &field) == 0 && field.code == 0)
    gpu.recovery = static_cast<int>(field.value.as_unsigned);
  gpu.mig = ask_mode(nvml, "nvmlDeviceGetMigMode", device);
  gpu.compute_mode = ask(nvml, "nvmlDeviceGetComputeMode", device);
  return gpu;
}

}  // namespace

NvmlFacts read_nvml(const std::string& library) {
  NvmlFacts facts;
  const Library nvml(library);
  facts.found = nvml.found();
  facts.why = nvml.why();
  if (!facts.found) return facts;
  if (const Code code = nvml.call("nvmlInit_v2"); code != 0) {
    facts.why = nvml.error_text(code);
    return facts;
  }
  facts.usable = true;
  std::array<char, 81> version{};
  const unsigned room = version.size() - 1;
  if (nvml.call("nvmlSystemGetDriverVersion", version.data(), room) == 0) facts.driver = version.data();
  unsigned count = 0;
  if (const Code code = nvml.call("nvmlDeviceGetCount_v2", &count); code != 0)
    facts.why = nvml.error_text(code);
  for (unsigned i = 0; i < count; ++i) facts.gpus.push_back(read_gpu(nvml, i));
  nvml.call("nvmlShutdown");
  return facts;
}

}  // namespace holdfast::launcher

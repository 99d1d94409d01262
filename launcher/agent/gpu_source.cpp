#include "launcher/agent/gpu_source.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace holdfast::launcher {
namespace {

// Declarations from the library's own header, which is not needed for these few (NVML API reference: "Event
// Handling Methods", "Field Value Queries", "Device Queries").
using Result = int;
using Handle = void*;
constexpr Result success = 0, invalid_argument = 2, not_supported = 3, gpu_is_lost = 15;
constexpr unsigned long long double_bit_error = 0x2, xid_critical = 0x8;
constexpr unsigned recovery_action = 230;            // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
constexpr unsigned long long too_hot = 0x20 | 0x40;  // clocks: thermal slowdown, by driver or hardware
constexpr unsigned max_links = 18, max_gpus = 64, uuid_bytes = 96;
constexpr int max_events = 256;      // in one poll
constexpr int thorough = 5;          // one poll of so many is thorough, and each after an event
constexpr int polls_for_a_link = 2;  // thorough polls

struct Event {
  Handle device = nullptr;
  unsigned long long type = 0, data = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct Pci {
  char legacy_bus[16] = {};
  unsigned domain = 0, bus = 0, device = 0, ids = 0, subsystem = 0;
  char bus_id[32] = {};
};
struct Field {
  unsigned id = 0, scope = 0;
  long long timestamp = 0, latency_us = 0;
  int type = 0;
  Result result = 0;
  union {
    unsigned number;
    unsigned long long wide;
  } value{};
};

}  // namespace

/// Any function may be missing.
struct GpuSigns::Library {
  void* handle = nullptr;
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*by_index)(unsigned, Handle*) = nullptr;
  Result (*uuid)(Handle, char*, unsigned) = nullptr;
  Result (*pci)(Handle, Pci*) = nullptr;
  Result (*create_events)(void**) = nullptr;
  Result (*supported)(Handle, unsigned long long*) = nullptr;
  Result (*listen)(Handle, unsigned long long, void*) = nullptr;
  Result (*wait)(void*, Event*, unsigned) = nullptr;
  Result (*free_events)(void*) = nullptr;
  Result (*fields)(Handle, int, Field*) = nullptr;
  Result (*remapped)(Handle, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Result (*link)(Handle, unsigned, unsigned*) = nullptr;
  Result (*slowdowns)(Handle, unsigned long long*) = nullptr;

  explicit Library(void* loaded) : handle(loaded) {
    const auto load = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    };
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(count, "nvmlDeviceGetCount_v2");
    load(by_index, "nvmlDeviceGetHandleByIndex_v2");
    load(uuid, "nvmlDeviceGetUUID");
    load(pci, "nvmlDeviceGetPciInfo_v3");
    load(create_events, "nvmlEventSetCreate");
    load(supported, "nvmlDeviceGetSupportedEventTypes");
    load(listen, "nvmlDeviceRegisterEvents");
    load(wait, "nvmlEventSetWait_v2");
    load(free_events, "nvmlEventSetFree");
    load(fields, "nvmlDeviceGetFieldValues");
    load(remapped, "nvmlDeviceGetRemappedRows");
    load(link, "nvmlDeviceGetNvLinkState");
    load(slowdowns, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  ~Library() {
    if (shutdown) shutdown();
    ::dlclose(handle);
  }
  /// Nothing: the GPU does not answer for some of them.
  std::optional<int> active_links(Handle gpu) const {
    int up = 0;
    for (unsigned n = 0; link && n < max_links; ++n) {
      unsigned active = 0;
      const Result result = link(gpu, n, &active);
      if (result != success && result != not_supported && result != invalid_argument) return std::nullopt;
      up += result == success && active;
    }
    return up;
  }
};

struct GpuSigns::Gpu {
  Handle handle = nullptr;
  std::string name;  ///< "GPU 3 (0000:3b:00, GPU-...)"
  bool lost = false, remap_failed = false, hot = false;
  unsigned recovery = 0;
  int links = 0;       ///< that were up at the start
  int polls_down = 0;  ///< thorough polls in a row with fewer links
};

GpuSigns::GpuSigns(std::string library) : name_(std::move(library)) {}

GpuSigns::~GpuSigns() {
  if (events_ && library_->free_events) library_->free_events(events_);
}

bool GpuSigns::load() {
  if (std::exchange(tried_, true)) return library_ != nullptr;
  void* loaded = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return false;
  auto library = std::make_unique<Library>(loaded);
  if (!library->init || !library->count || !library->by_index || library->init() != success) {
    library->shutdown = nullptr;  // it was not initialised
    return false;
  }
  library_ = std::move(library);
  unsigned count = 0;
  library_->count(&count);
  if (library_->create_events && library_->create_events(&events_) != success) events_ = nullptr;
  for (unsigned n = 0; n < std::min(count, max_gpus); ++n) {
    Gpu gpu;
    if (library_->by_index(n, &gpu.handle) != success) continue;
    Pci pci;
    char uuid[uuid_bytes] = {};
    if (library_->pci) library_->pci(gpu.handle, &pci);
    if (library_->uuid) library_->uuid(gpu.handle, uuid, uuid_bytes);
    gpu.name = fmt::format("GPU {} ({:04x}:{:02x}:{:02x}, {})", n, pci.domain, pci.bus, pci.device, uuid);
    gpu.links = library_->active_links(gpu.handle).value_or(0);
    unsigned long long types = 0;
    if (events_ && library_->listen && library_->supported &&
        library_->supported(gpu.handle, &types) == success)
      library_->listen(gpu.handle, types & (xid_critical | double_bit_error), events_);
    gpus_.push_back(std::move(gpu));
  }
  return true;
}

std::vector<control::Sign> GpuSigns::poll() {
  std::vector<control::Sign> out;
  if (!load()) return out;
  take_events(out);
  const bool closely = polls_++ % thorough == 0 || !out.empty();
  for (Gpu& gpu : gpus_)
    if (!gpu.lost) poll_gpu(gpu, closely, out);
  return out;
}

void GpuSigns::take_events(std::vector<control::Sign>& out) {
  Event event;
  for (int n = 0;
       n < max_events && events_ && library_->wait && library_->wait(events_, &event, 0) == success; ++n) {
    const auto gpu =
        std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& g) { return g.handle == event.device; });
    const std::string name = gpu == gpus_.end() ? "a GPU" : gpu->name;
    const auto code = static_cast<std::int64_t>(event.data);
    if (event.type == xid_critical)
      out.push_back({"xid", -1, code, 0, fmt::format("Xid {} of {}", code, name)});
    else if (event.type == double_bit_error)
      out.push_back({"ecc_uncorrected", -1, code, 0, name});
  }
}

void GpuSigns::poll_gpu(Gpu& gpu, bool closely, std::vector<control::Sign>& out) const {
  const Library& l = *library_;
  const auto say = [&](const char* kind, std::int64_t code, const std::string& more = "") {
    out.push_back({kind, -1, code, 0, gpu.name + more});
  };
  unsigned long long reasons = 0;
  const Result alive = l.slowdowns ? l.slowdowns(gpu.handle, &reasons) : success;
  if (alive == gpu_is_lost) {
    gpu.lost = true;
    return say("gpu_lost", 0);
  }
  const bool hot = alive == success && (reasons & too_hot) != 0;
  if (hot && !gpu.hot) say("thermal", static_cast<std::int64_t>(reasons));
  gpu.hot = hot;
  if (!closely) return;
  Field action;
  action.id = recovery_action;
  if (l.fields && l.fields(gpu.handle, 1, &action) == success && action.result == success) {
    const unsigned before = std::exchange(gpu.recovery, action.value.number);
    if (gpu.recovery != before && gpu.recovery != 0) say("gpu_recovery", gpu.recovery);
  }
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (l.remapped && l.remapped(gpu.handle, &corrected, &uncorrected, &pending, &failed) == success &&
      failed && !std::exchange(gpu.remap_failed, true))
    say("row_remap_failure", uncorrected);
  // A link may be trained again: only one that stays down is broken.
  const auto links = l.active_links(gpu.handle);
  gpu.polls_down = links && *links < gpu.links ? gpu.polls_down + 1 : 0;
  if (gpu.polls_down == polls_for_a_link)
    say("nvlink_error", gpu.links - *links, fmt::format(": {} of {} links are up", *links, gpu.links));
}

}  // namespace holdfast::launcher

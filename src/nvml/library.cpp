// The constructor loads the library and calls nvmlInit_v2. If either fails, `absent_` keeps why, and every
// later call() says "not supported" without touching the library. Each question is then the same: call()
// looks the function up by its name and calls it, and told() makes nothing of any result but success, passing
// the result on where the caller asked for it. A function that this version of the library does not have is
// not supported as well.
//
// Values of fields (FieldValue) have a result of their own beside that of the call, and both must be success.
// Links are asked one by one up to 18; one that the GPU does not have is left out. No call keeps anything but
// listen(), whose event set lives until the destructor.
#include "src/nvml/library.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace holdfast::nvml {
namespace {

// Of the library's C interface (NVIDIA, NVML API reference). Numbers and layouts are stable: new versions of
// a struct get new function names.
constexpr unsigned sensor_of_gpu = 0, slowdown_threshold = 1, clock_of_sm = 1;
constexpr unsigned max_links = 18;
constexpr std::size_t max_cpu_words = 64;  // 4096 logical CPUs

template <class To, class From>
std::optional<To> told(Result result, const From& value, Result* out = nullptr) {
  if (out) *out = result;
  if (result != success) return std::nullopt;
  return static_cast<To>(value);
}

}  // namespace

/// By name; not supported when this version of the library has no such function.
template <class... Arguments>
Result Library::call(const char* function, Arguments... arguments) const {
  using Function = Result (*)(Arguments...);
  if (!absent_.empty()) return not_supported;
  const auto found = reinterpret_cast<Function>(::dlsym(handle_, function));
  return found ? found(arguments...) : not_supported;
}

Library::Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) {
    const char* why = ::dlerror();
    absent_ = why ? why : name;
  } else if (!::dlsym(handle_, "nvmlInit_v2")) {
    absent_ = fmt::format("{} has no nvmlInit_v2", name);
  } else if (const Result result = call("nvmlInit_v2"); result != success) {
    absent_ = words(result);
  }
}

Library::~Library() {
  if (events_) call("nvmlEventSetFree", events_);
  call("nvmlShutdown");
  if (handle_) ::dlclose(handle_);
}

std::string Library::words(Result result) const {
  using Function = const char* (*)(Result);
  const auto function = reinterpret_cast<Function>(::dlsym(handle_, "nvmlErrorString"));
  return function ? function(result) : fmt::format("NVML's error {}", result);
}

std::string Library::driver() const {
  std::array<char, 97> text{};
  const unsigned room = text.size() - 1;
  return call("nvmlSystemGetDriverVersion", text.data(), room) == success ? text.data() : "";
}

std::optional<int> Library::count(Result* result) const {
  unsigned count = 0;
  return told<int>(call("nvmlDeviceGetCount_v2", &count), count, result);
}

std::optional<Gpu> Library::by_index(unsigned index, Result* result) const {
  Gpu gpu = nullptr;
  return told<Gpu>(call("nvmlDeviceGetHandleByIndex_v2", index, &gpu), gpu, result);
}

std::optional<Gpu> Library::by_bus(const std::string& bus) const {
  Gpu gpu = nullptr;
  return told<Gpu>(call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &gpu), gpu);
}

std::optional<Pci> Library::pci(Gpu gpu) const {
  Pci pci;
  return told<Pci>(call("nvmlDeviceGetPciInfo_v3", gpu, &pci), pci);
}

std::optional<Memory> Library::memory(Gpu gpu) const {
  Memory memory;
  return told<Memory>(call("nvmlDeviceGetMemoryInfo", gpu, &memory), memory);
}

std::optional<std::int64_t> Library::errors(Gpu gpu, Error kind, Span span) const {
  unsigned long long count = 0;
  const auto which = static_cast<unsigned>(kind), since = static_cast<unsigned>(span);
  return told<std::int64_t>(call("nvmlDeviceGetTotalEccErrors", gpu, which, since, &count), count);
}

std::optional<Remap> Library::remap(Gpu gpu) const {
  Remap rows;
  const Result result =
      call("nvmlDeviceGetRemappedRows", gpu, &rows.corrected, &rows.uncorrected, &rows.pending, &rows.failed);
  return told<Remap>(result, rows);
}

std::optional<SramErrors> Library::sram_errors(Gpu gpu) const {
  SramErrors errors;
  errors.version = sizeof errors | 1U << 24;
  return told<SramErrors>(call("nvmlDeviceGetSramEccErrorStatus", gpu, &errors), errors);
}

std::optional<std::uint64_t> Library::slowdowns(Gpu gpu, Result* result) const {
  unsigned long long bits = 0;
  Result told_by = call("nvmlDeviceGetCurrentClocksEventReasons", gpu, &bits);
  if (told_by != success) told_by = call("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &bits);
  return told<std::uint64_t>(told_by, bits, result);
}

std::optional<int> Library::celsius(Gpu gpu, Result* result) const {
  unsigned value = 0;
  return told<int>(call("nvmlDeviceGetTemperature", gpu, sensor_of_gpu, &value), value, result);
}

std::optional<int> Library::slowdown_celsius(Gpu gpu) const {
  unsigned value = 0;
  return told<int>(call("nvmlDeviceGetTemperatureThreshold", gpu, slowdown_threshold, &value), value);
}

std::optional<int> Library::sm_clock_mhz(Gpu gpu) const {
  unsigned value = 0;
  return told<int>(call("nvmlDeviceGetClockInfo", gpu, clock_of_sm, &value), value);
}

std::optional<int> Library::sm_clock_max_mhz(Gpu gpu) const {
  unsigned value = 0;
  return told<int>(call("nvmlDeviceGetMaxClockInfo", gpu, clock_of_sm, &value), value);
}

std::optional<int> Library::recovery_action(Gpu gpu) const {
  FieldValue action;
  action.field = recovery_action_field;
  const Result result = call("nvmlDeviceGetFieldValues", gpu, 1, &action);
  return told<int>(result == success ? action.result : result, action.value.number);
}

Links Library::links(Gpu gpu) const {
  Links links;
  for (unsigned n = 0; n < max_links; ++n) {
    unsigned active = 0;
    const Result result = call("nvmlDeviceGetNvLinkState", gpu, n, &active);
    if (result == success)
      ++(active ? links.up : links.down);
    else if (result != not_supported && result != invalid_argument)
      links.all_answered = false;
  }
  return links;
}

std::map<unsigned, int> Library::link_speeds(Gpu gpu) const {
  std::map<unsigned, int> speeds;
  for (unsigned n = 0; n < max_links; ++n) {
    unsigned active = 0;
    if (call("nvmlDeviceGetNvLinkState", gpu, n, &active) != success || !active) continue;
    FieldValue speed;
    speed.field = link_speed_field;
    speed.scope = n;
    if (call("nvmlDeviceGetFieldValues", gpu, 1, &speed) == success && speed.result == success &&
        speed.value.number > 0)
      speeds[n] = static_cast<int>(speed.value.number);
  }
  return speeds;
}

std::optional<std::int64_t> Library::link_bytes(Gpu gpu) const {
  std::int64_t kib = 0;
  for (const unsigned field : {link_sent_field, link_received_field}) {
    FieldValue value;
    value.field = field;
    value.scope = all_links;
    if (call("nvmlDeviceGetFieldValues", gpu, 1, &value) != success || value.result != success)
      return std::nullopt;
    kib += static_cast<std::int64_t>(value.value.wide);
  }
  return kib * 1024;
}

std::optional<Fabric> Library::fabric(Gpu gpu) const {
  Fabric fabric;
  return told<Fabric>(call("nvmlDeviceGetGpuFabricInfo", gpu, &fabric), fabric);
}

std::vector<int> Library::near_cpus(Gpu gpu) const {
  std::vector<int> cpus;
  std::array<unsigned long, max_cpu_words> mask{};
  const auto room = static_cast<unsigned>(max_cpu_words);
  if (call("nvmlDeviceGetCpuAffinity", gpu, room, mask.data()) != success) return cpus;
  constexpr int bits = 8 * sizeof(unsigned long);
  for (int i = 0; i < static_cast<int>(max_cpu_words) * bits; ++i)
    if (mask[i / bits] >> i % bits & 1) cpus.push_back(i);
  return cpus;
}

void Library::listen(Gpu gpu) {
  unsigned long long types = 0;
  if (!events_ && call("nvmlEventSetCreate", &events_) != success) events_ = nullptr;
  if (events_ && call("nvmlDeviceGetSupportedEventTypes", gpu, &types) == success)
    call("nvmlDeviceRegisterEvents", gpu, types & (xid_critical | double_bit_error), events_);
}

std::optional<Event> Library::next_event() {
  Event event;
  if (!events_) return std::nullopt;
  return told<Event>(call("nvmlEventSetWait_v2", events_, &event, 0u), event);
}

std::optional<int> Library::number(const char* function, Gpu gpu) const {
  unsigned value = 0;
  return told<int>(call(function, gpu, &value), value);
}

/// The first of a pair: the present mode, not the pending one.
std::optional<bool> Library::mode(const char* function, Gpu gpu) const {
  unsigned now = 0, pending = 0;
  return told<bool>(call(function, gpu, &now, &pending), now);
}

std::string Library::text(const char* function, Gpu gpu) const {
  std::array<char, 97> text{};
  const unsigned room = text.size() - 1;
  return call(function, gpu, text.data(), room) == success ? text.data() : "";
}

}  // namespace holdfast::nvml

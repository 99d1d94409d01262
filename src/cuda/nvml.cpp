#include "src/cuda/nvml.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace holdfast::cuda {
namespace {

// Of the library's own header, which is not needed for these few (NVML API reference, "Device Queries").
using Result = int;
constexpr Result success = 0;
using Handle = void*;
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;
};
constexpr int clock_of_multiprocessors = 1, temperature_of_gpu = 0;
constexpr int corrected_errors = 0, uncorrected_errors = 1, since_driver_load = 0;
constexpr unsigned max_links = 18;
constexpr std::size_t max_cpu_words = 64;  ///< 4096 logical CPUs
constexpr unsigned text_bytes = 128;

struct Slowdown {
  std::uint64_t bit;
  const char* name;
};
// Idle clocks, a user's own limit and the ordinary power cap are not among them.
constexpr std::array<Slowdown, 4> slowdowns{{{0x08, "hardware slowdown"},
                                             {0x20, "thermal slowdown by the driver"},
                                             {0x40, "thermal slowdown by the hardware"},
                                             {0x80, "power brake"}}};

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const auto& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

}  // namespace

/// Any of them may be missing in an old library.
struct Nvml::Functions {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error)(Result) = nullptr;
  Result (*driver)(char*, unsigned) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*by_bus)(const char*, Handle*) = nullptr;
  Result (*memory)(Handle, Memory*) = nullptr;
  Result (*clock)(Handle, int, unsigned*) = nullptr;
  Result (*largest_clock)(Handle, int, unsigned*) = nullptr;
  Result (*slowdowns)(Handle, unsigned long long*) = nullptr;
  Result (*power)(Handle, unsigned*) = nullptr;
  Result (*power_limit)(Handle, unsigned*) = nullptr;
  Result (*temperature)(Handle, int, unsigned*) = nullptr;
  Result (*errors)(Handle, int, int, unsigned long long*) = nullptr;
  Result (*slices)(Handle, unsigned*, unsigned*) = nullptr;
  Result (*link)(Handle, unsigned, unsigned*) = nullptr;
  Result (*cpus)(Handle, unsigned, unsigned long*) = nullptr;

  explicit Functions(void* library) {
    const auto load = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(error, "nvmlErrorString");
    load(driver, "nvmlSystemGetDriverVersion");
    load(count, "nvmlDeviceGetCount_v2");
    load(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(clock, "nvmlDeviceGetClockInfo");
    load(largest_clock, "nvmlDeviceGetMaxClockInfo");
    load(slowdowns, "nvmlDeviceGetCurrentClocksThrottleReasons");
    load(power, "nvmlDeviceGetPowerUsage");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(temperature, "nvmlDeviceGetTemperature");
    load(errors, "nvmlDeviceGetTotalEccErrors");
    load(slices, "nvmlDeviceGetMigMode");
    load(link, "nvmlDeviceGetNvLinkState");
    load(cpus, "nvmlDeviceGetCpuAffinity");
  }
};

namespace {

/// The last argument's value when the call is there and succeeds.
template <class Value, class Function, class... Arguments>
std::optional<Value> ask(Function* function, Arguments... arguments) {
  Value value{};
  if (!function || function(arguments..., &value) != success) return std::nullopt;
  return value;
}

template <class To, class From>
std::optional<To> as(const std::optional<From>& value, From divisor = 1) {
  if (!value) return std::nullopt;
  return static_cast<To>(*value / divisor);
}

}  // namespace

Nvml::Nvml(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (!library_) {
    const char* why = ::dlerror();
    absent_ = why ? why : library;
    return;
  }
  functions_ = std::make_unique<Functions>(library_);
  if (!functions_->init || !functions_->by_bus) {
    absent_ = fmt::format("{} has no nvmlInit_v2", library);
  } else if (const Result result = functions_->init(); result != success) {
    absent_ = functions_->error ? functions_->error(result) : fmt::format("nvmlInit_v2 returned {}", result);
  }
}

Nvml::~Nvml() {
  if (library_ && absent_.empty() && functions_->shutdown) functions_->shutdown();
  if (library_) ::dlclose(library_);
}

std::string Nvml::driver() const {
  char text[text_bytes] = {};
  if (!absent_.empty() || !functions_->driver || functions_->driver(text, text_bytes) != success) return "";
  return text;
}

int Nvml::count() const {
  if (!absent_.empty()) return -1;
  const auto count = ask<unsigned>(functions_->count);
  return count ? static_cast<int>(*count) : -1;
}

void* Nvml::find(const std::string& bus) const {
  Handle handle = nullptr;
  if (!absent_.empty() || functions_->by_bus(bus.c_str(), &handle) != success) return nullptr;
  return handle;
}

GpuHealth Nvml::health(const std::string& bus) const {
  GpuHealth health;
  Handle gpu = find(bus);
  if (!gpu) return health;
  const Functions& f = *functions_;
  if (const auto memory = ask<Memory>(f.memory, gpu))
    health.memory_bytes = memory->total, health.memory_used_bytes = memory->used;
  health.clock_mhz = as<int>(ask<unsigned>(f.clock, gpu, clock_of_multiprocessors));
  health.largest_clock_mhz = as<int>(ask<unsigned>(f.largest_clock, gpu, clock_of_multiprocessors));
  health.slowdowns = as<std::uint64_t>(ask<unsigned long long>(f.slowdowns, gpu));
  health.watts = as<int>(ask<unsigned>(f.power, gpu), 1000u);
  health.limit_watts = as<int>(ask<unsigned>(f.power_limit, gpu), 1000u);
  health.celsius = as<int>(ask<unsigned>(f.temperature, gpu, temperature_of_gpu));
  health.corrected =
      as<std::uint64_t>(ask<unsigned long long>(f.errors, gpu, corrected_errors, since_driver_load));
  health.uncorrected =
      as<std::uint64_t>(ask<unsigned long long>(f.errors, gpu, uncorrected_errors, since_driver_load));
  unsigned current = 0, pending = 0;
  if (f.slices && f.slices(gpu, &current, &pending) == success) health.slices = current != 0;
  for (unsigned i = 0; i < max_links; ++i)
    if (const auto active = ask<unsigned>(f.link, gpu, i)) ++health.links, health.links_down += *active == 0;
  return health;
}

std::vector<int> Nvml::near_cpus(const std::string& bus) const {
  std::vector<int> cpus;
  Handle gpu = find(bus);
  std::array<unsigned long, max_cpu_words> words{};
  if (!gpu || !functions_->cpus || functions_->cpus(gpu, max_cpu_words, words.data()) != success) return cpus;
  constexpr int bits = 8 * sizeof(unsigned long);
  for (int i = 0; i < static_cast<int>(max_cpu_words) * bits; ++i)
    if (words[static_cast<std::size_t>(i / bits)] >> i % bits & 1) cpus.push_back(i);
  return cpus;
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

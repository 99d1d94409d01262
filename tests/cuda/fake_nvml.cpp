// A management library of two GPUs, for the test: what it says is in the environment, so that one library
// serves all cases. Two functions of the real one are missing, as in an old driver.
#include <cstdlib>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
constexpr int success = 0, not_supported = 3, not_found = 6;
long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtol(text, nullptr, 0) : otherwise;
}
int first_gpu, second_gpu;
}  // namespace

EXPORTED int nvmlInit_v2() { return static_cast<int>(number("FAKE_NVML_INIT", success)); }
EXPORTED int nvmlShutdown() { return success; }
EXPORTED const char* nvmlErrorString(int) { return "Driver/library version mismatch"; }
EXPORTED int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::strncpy(text, "580.65.06", bytes);
  return success;
}
EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return success;
}
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** gpu) {
  if (!std::strcmp(bus, "0000:1b:00.0")) return *gpu = &first_gpu, success;
  if (!std::strcmp(bus, "0000:43:00.0")) return *gpu = &second_gpu, success;
  return not_found;
}
EXPORTED int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 80'000'000'000, memory[1] = 79'000'000'000, memory[2] = 1'000'000'000;
  return success;
}
EXPORTED int nvmlDeviceGetClockInfo(void* gpu, int what, unsigned* mhz) {
  if (what != 1) return not_supported;
  *mhz = gpu == &first_gpu ? 1755 : 345;
  return success;
}
EXPORTED int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return success;
}
EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  *bits = static_cast<unsigned long long>(number("FAKE_NVML_SLOWDOWNS", 0));
  return success;
}
EXPORTED int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 412'700;
  return success;
}
EXPORTED int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 54;
  return success;
}
EXPORTED int nvmlDeviceGetTotalEccErrors(void*, int kind, int counter, unsigned long long* errors) {
  if (counter != 0) return not_supported;
  *errors = kind == 0 ? 7 : static_cast<unsigned long long>(number("FAKE_NVML_UNCORRECTED", 0));
  return success;
}
EXPORTED int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  if (link >= 18) return not_found;
  *active = static_cast<long>(link) < number("FAKE_NVML_LINKS", 18);
  return success;
}
EXPORTED int nvmlDeviceGetCpuAffinity(void* gpu, unsigned words, unsigned long* cpus) {
  std::memset(cpus, 0, words * sizeof *cpus);
  cpus[gpu == &first_gpu ? 0 : 1] = 0xf;  // 0-3, or 64-67
  return success;
}
EXPORTED int nvmlDeviceGetMigMode(void* gpu, unsigned* current, unsigned* pending) {
  *current = *pending = gpu == &second_gpu;
  return success;
}

// A management library of a few GPUs of which the first falls ill as FAKE_NVML_... in the environment says.
// Some functions of the real one are missing, as in an old driver.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/nvml/library.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace holdfast::nvml;

namespace {
constexpr Result not_found = 6, driver_not_loaded = 9, timed_out = 10;
int gpus[8];
int event_set;

long number(const std::string& name, long otherwise) {
  const char* text = std::getenv(("FAKE_NVML_" + name).c_str());
  return text ? std::strtol(text, nullptr, 0) : otherwise;
}
/// What the variable says of the first GPU; the others are well.
unsigned of(Gpu gpu, const char* name, unsigned well) {
  return gpu == &gpus[0] ? static_cast<unsigned>(number(name, well)) : well;
}
Result tell(char* to, unsigned bytes, const char* text) {
  std::strncpy(to, text, bytes);
  return success;
}
Result tell(unsigned* to, unsigned value) { return *to = value, success; }
}  // namespace

EXPORTED Result nvmlInit_v2() { return static_cast<Result>(number("INIT", success)); }
EXPORTED Result nvmlShutdown() { return success; }
EXPORTED const char* nvmlErrorString(Result result) {
  return result == driver_not_loaded ? "Driver Not Loaded"
         : result == gpu_is_lost     ? "GPU is lost"
                                     : "Driver/library version mismatch";
}
EXPORTED Result nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return tell(text, bytes, "580.65.06");
}
EXPORTED Result nvmlDeviceGetCount_v2(unsigned* count) {
  return tell(count, static_cast<unsigned>(number("GPUS", 2)));
}
EXPORTED Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu* gpu) {
  *gpu = &gpus[index];
  return of(*gpu, "LOST", 0) ? gpu_is_lost : success;
}
EXPORTED Result nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Gpu* gpu) {
  const std::string asked = bus;
  *gpu = &gpus[asked == "0000:9a:00.0"];
  return asked == "0000:18:00.0" || asked == "0000:9a:00.0" ? success : not_found;
}
EXPORTED Result nvmlDeviceGetName(Gpu, char* text, unsigned bytes) {
  return tell(text, bytes, "NVIDIA H100 80GB HBM3");
}
EXPORTED Result nvmlDeviceGetUUID(Gpu, char* text, unsigned bytes) {
  return tell(text, bytes, "GPU-5f1b0a77-0001");
}
EXPORTED Result nvmlDeviceGetPciInfo_v3(Gpu gpu, Pci* pci) {
  pci->bus = gpu == &gpus[0] ? 0x18 : 0x9a;
  return tell(pci->id, sizeof pci->id, gpu == &gpus[0] ? "00000000:18:00.0" : "00000000:9A:00.0");
}
EXPORTED Result nvmlDeviceGetMemoryInfo(Gpu, Memory* memory) {
  *memory = {80ull << 30, 79ull << 30, 1ull << 30};
  return success;
}
EXPORTED Result nvmlDeviceGetEccMode(Gpu, unsigned* now, unsigned* pending) {
  return *now = *pending = 1, success;
}
EXPORTED Result nvmlDeviceGetMigMode(Gpu gpu, unsigned* now, unsigned* pending) {
  return *now = *pending = of(gpu, "MIG", 0), success;
}
EXPORTED Result nvmlDeviceGetTotalEccErrors(Gpu gpu, Error kind, Span span, unsigned long long* errors) {
  *errors = kind == Error::corrected ? 7 : span == Span::since_load ? of(gpu, "UNCORRECTED", 0) : 0;
  return success;
}
EXPORTED Result nvmlDeviceGetRemappedRows(Gpu gpu, unsigned* corrected, unsigned* uncorrected,
                                          unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = *failed = 0;
  return tell(pending, of(gpu, "REMAP_PENDING", 0));
}
EXPORTED Result nvmlDeviceGetSramEccErrorStatus(Gpu gpu, SramErrors* errors) {
  if (errors->version != 0x1000068) return 25;  // another size
  errors->threshold_exceeded = of(gpu, "SRAM_EXCEEDED", 0);
  return success;
}
EXPORTED Result nvmlDeviceGetClockInfo(Gpu, unsigned what, unsigned* mhz) {
  return what == 1 ? tell(mhz, 1755) : not_supported;
}
EXPORTED Result nvmlDeviceGetMaxClockInfo(Gpu, unsigned, unsigned* mhz) { return tell(mhz, 1980); }
EXPORTED Result nvmlDeviceGetPowerUsage(Gpu, unsigned* milliwatts) { return tell(milliwatts, 412'700); }
EXPORTED Result nvmlDeviceGetTemperature(Gpu, unsigned, unsigned* celsius) { return tell(celsius, 54); }
EXPORTED Result nvmlDeviceGetCurrentClocksThrottleReasons(Gpu gpu, unsigned long long* bits) {
  *bits = of(gpu, "SLOWDOWNS", 1);
  return of(gpu, "LOST", 0) ? gpu_is_lost : success;
}
EXPORTED Result nvmlDeviceGetCurrPcieLinkWidth(Gpu gpu, unsigned* lanes) {
  return tell(lanes, of(gpu, "PCIE_WIDTH", 16));
}
EXPORTED Result nvmlDeviceGetMaxPcieLinkWidth(Gpu, unsigned* lanes) { return tell(lanes, 16); }
EXPORTED Result nvmlDeviceGetMaxPcieLinkGeneration(Gpu, unsigned* generation) { return tell(generation, 5); }
EXPORTED Result nvmlDeviceGetNvLinkState(Gpu gpu, unsigned link, unsigned* active) {
  return tell(active, link < of(gpu, "LINKS", 18));
}
EXPORTED Result nvmlDeviceGetGpuFabricInfo(Gpu, Fabric* fabric) { return fabric->state = 3, success; }
EXPORTED Result nvmlDeviceGetCpuAffinity(Gpu gpu, unsigned words, unsigned long* cpus) {
  std::fill_n(cpus, words, 0ul);
  cpus[gpu == &gpus[0] ? 0 : 1] = 0xf;  // 0-3, or 64-67
  return success;
}
EXPORTED Result nvmlDeviceGetFieldValues(Gpu gpu, int, FieldValue* field) {
  field->result = success;
  if (field->field == recovery_action_field)
    field->value.number = of(gpu, "RECOVERY", 0);
  else if (field->field == link_sent_field || field->field == link_received_field)
    field->value.wide = of(gpu, "LINK_KIB", 0);
  else if (field->field == link_speed_field)
    field->value.number = field->scope == 3 ? of(gpu, "LINK_SPEED", 26562) : 26562;
  else
    field->result = not_supported;
  return success;
}
EXPORTED Result nvmlEventSetCreate(void** events) { return *events = &event_set, success; }
EXPORTED Result nvmlEventSetFree(void*) { return success; }
EXPORTED Result nvmlDeviceGetSupportedEventTypes(Gpu, unsigned long long* types) {
  return *types = 0x1f, success;
}
EXPORTED Result nvmlDeviceRegisterEvents(Gpu, unsigned long long types, void*) {
  return types == (xid_critical | double_bit_error) ? success : not_supported;
}
EXPORTED Result nvmlEventSetWait_v2(void*, Event* event, unsigned) {
  static unsigned told = 0;
  const unsigned xid = of(&gpus[0], "XID", 0);
  if (xid == told) return timed_out;
  told = xid;
  *event = {&gpus[0], xid_critical, xid, 0, 0};
  return success;
}

// A management library of one GPU whose errors are set in the environment, for the test of GpuSigns.
#include <cstdlib>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
constexpr int success = 0, not_supported = 3, timed_out = 10, lost = 15;
long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtol(text, nullptr, 0) : otherwise;
}
int gpu, set;
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned instance, part;
};
struct Field {
  unsigned id, scope;
  long long time, latency;
  int type, result;
  unsigned long long value;
};
}  // namespace

EXPORTED int nvmlInit_v2() { return success; }
EXPORTED int nvmlShutdown() { return success; }
EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, success; }
EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) { return *handle = &gpu, success; }
EXPORTED int nvmlDeviceGetUUID(void*, char* text, unsigned bytes) {
  std::strncpy(text, "GPU-5f1b0a77-0001", bytes);
  return success;
}
EXPORTED int nvmlDeviceGetPciInfo_v3(void*, void* pci) {
  const unsigned address[3] = {0, 0x3b, 0};
  std::memcpy(static_cast<char*>(pci) + 16, address, sizeof address);
  return success;
}
EXPORTED int nvmlEventSetCreate(void** events) { return *events = &set, success; }
EXPORTED int nvmlEventSetFree(void*) { return success; }
EXPORTED int nvmlDeviceGetSupportedEventTypes(void*, unsigned long long* types) {
  return *types = 0x1f, success;
}
EXPORTED int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) {
  return types == 0xa ? success : not_supported;
}
EXPORTED int nvmlEventSetWait_v2(void*, Event* event, unsigned) {
  static long told = 0;
  const long xid = number("FAKE_GPU_XID", 0);
  if (xid == told) return timed_out;
  told = xid;
  *event = {&gpu, 8, static_cast<unsigned long long>(xid), 0, 0};
  return success;
}
EXPORTED int nvmlDeviceGetFieldValues(void*, int, Field* field) {
  field->result = field->id == 230 ? success : not_supported;
  field->value = static_cast<unsigned long long>(number("FAKE_GPU_RECOVERY", 0));
  return success;
}
EXPORTED int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  *active = static_cast<long>(link) < number("FAKE_GPU_LINKS", 18);
  return success;
}
EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  if (number("FAKE_GPU_LOST", 0)) return lost;
  *bits = static_cast<unsigned long long>(number("FAKE_GPU_SLOWDOWNS", 0));
  return success;
}

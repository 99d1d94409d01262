// NVIDIA's management library as far as the checks call it, with GPUs from the environment:
// FAKE_GPUS=N, FAKE_BROKEN=the fault of GPU 1.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
int gpus() { return std::atoi(std::getenv("FAKE_GPUS") ? std::getenv("FAKE_GPUS") : "0"); }
bool broken(long device, const char* how) {
  const char* what = std::getenv("FAKE_BROKEN");
  return device == 2 && what != nullptr && std::string(what) == how;  // handles count from 1
}
struct Memory {
  unsigned long long total, free, used;
};
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char id[32];
};
struct Field {
  unsigned field, scope;
  long long at, latency;
  unsigned type;
  int code;
  unsigned long long value;
};
struct Fabric {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
}  // namespace

#pragma GCC diagnostic ignored "-Wmissing-declarations"
extern "C" {
int nvmlInit_v2() { return std::getenv("FAKE_NO_DRIVER") ? 9 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "?";
}
int nvmlSystemGetDriverVersion(char* text, unsigned) { return std::strcpy(text, "570.1"), 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = static_cast<unsigned>(gpus()), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, long* device) {
  if (broken(index + 1, "lost")) return 15;
  return *device = index + 1, 0;
}
int nvmlDeviceGetName(long, char* text, unsigned) { return std::strcpy(text, "NVIDIA H100 80GB HBM3"), 0; }
int nvmlDeviceGetUUID(long, char* text, unsigned) { return std::strcpy(text, "GPU-1"), 0; }
int nvmlDeviceGetPciInfo_v3(long device, Pci* pci) {
  std::strcpy(pci->id, device == 1 ? "00000000:18:00.0" : "00000000:9A:00.0");
  return 0;
}
int nvmlDeviceGetEccMode(long, unsigned* now, unsigned* pending) { return *now = *pending = 1, 0; }
int nvmlDeviceGetTotalEccErrors(long device, unsigned type, unsigned span, unsigned long long* count) {
  return *count = type == 1 && span == 0 && broken(device, "ecc") ? 3 : 0, 0;
}
int nvmlDeviceGetRemappedRows(long device, unsigned* a, unsigned* b, unsigned* pending, unsigned* failed) {
  return *a = *b = 0, *pending = broken(device, "remap"), *failed = 0, 0;
}
int nvmlDeviceGetMemoryInfo(long, Memory* memory) { return *memory = {85899345920ull, 85899345920ull, 0}, 0; }
int nvmlDeviceGetCurrPcieLinkWidth(long device, unsigned* w) {
  return *w = broken(device, "pcie") ? 8 : 16, 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(long, unsigned* w) { return *w = 16, 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(long, unsigned* w) { return *w = 5, 0; }
int nvmlDeviceGetNvLinkState(long device, unsigned link, unsigned* up) {
  return *up = !(broken(device, "nvlink") && link == 7), 0;
}
int nvmlDeviceGetGpuFabricInfo(long, Fabric* fabric) { return fabric->state = 3, fabric->status = 0, 0; }
int nvmlDeviceGetTemperature(long, unsigned, unsigned* t) { return *t = 40, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(long device, unsigned long long* why) {
  return *why = broken(device, "power") ? 0x80 : 0x1, 0;
}
int nvmlDeviceGetFieldValues(long device, int, Field* field) {
  field->code = field->field == 230 ? 0 : 3;
  field->value = broken(device, "reboot") ? 2 : 0;
  return 0;
}
}

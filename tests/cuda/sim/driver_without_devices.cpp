// A driver library under the driver's name that finds no GPU. It remembers in what environment it was
// started.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

using Result = int;

namespace {
constexpr Result done = 0, invalid_value = 1, no_device = 100, not_found = 500;
std::string connections;  // NOLINT(runtime/string): of a library that is never unloaded

void look() {
  const char* const value = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (connections.empty()) connections = value != nullptr ? value : "not set";
}
}  // namespace

extern "C" {
/// CUDA_DEVICE_MAX_CONNECTIONS at the first call; "" when there was none.
const char* stand_in_connections() { return connections.c_str(); }

Result cuInit(unsigned) {
  look();
  return no_device;
}
Result cuDriverGetVersion(int* version) {
  look();
  if (version == nullptr) return invalid_value;
  *version = 13000;
  return done;
}
Result cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, void*) {
  static void* const self = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = std::strncmp(name, "cu", 2) == 0 ? ::dlsym(self, name) : nullptr;
  return *function != nullptr ? done : not_found;
}
Result cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}

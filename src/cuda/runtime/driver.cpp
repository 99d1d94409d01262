#include "src/cuda/runtime/driver.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstring>

#include "src/base/error.hpp"
#include "src/cuda/runtime/cuda_error.hpp"

namespace holdfast::cuda {
namespace {

/// Versions from which the functions are what is wanted: identifiers of slices; operations on words that need
/// no permission by the driver's configuration.
constexpr unsigned cuda_11_4 = 11040, cuda_11_7 = 11070;

template <class Function>
void find(Function*& function, const char* symbol, [[maybe_unused]] unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(symbol, &address, version, cudaEnableDefault, &result),
        "cudaGetDriverEntryPointByVersion");
#else  // gives the version that this header has, the same functions
  check(cudaGetDriverEntryPoint(symbol, &address, cudaEnableDefault, &result), "cudaGetDriverEntryPoint");
#endif
  if (result != cudaDriverEntryPointSuccess || !address)
    throw Error(Exit::runtime, fmt::format("the driver has no {}", symbol), {},
                "Install a newer NVIDIA driver?");
  function = reinterpret_cast<Function*>(address);
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  CUresult (*name_of)(CUresult, const char**) = nullptr;
  find(name_of, "cuGetErrorName", cuda_11_4);
  const char* name = "unknown";
  name_of(result, &name);
  throw Error(Exit::runtime, fmt::format("{} failed on the GPU", call), name);
}

CUdeviceptr address_of(const std::uint32_t* word) { return reinterpret_cast<CUdeviceptr>(word); }

}  // namespace

std::array<unsigned char, 16> uuid_of(int index) {
  CUresult (*device_of)(CUdevice*, int) = nullptr;
  CUresult (*get)(CUuuid*, CUdevice) = nullptr;
  find(device_of, "cuDeviceGet", cuda_11_4);
  find(get, "cuDeviceGetUuid", cuda_11_4);
  CUdevice device{};
  CUuuid uuid{};
  check(device_of(&device, index), "cuDeviceGet");
  check(get(&uuid, device), "cuDeviceGetUuid");
  std::array<unsigned char, 16> bytes{};
  static_assert(sizeof uuid == sizeof bytes);
  std::memcpy(bytes.data(), &uuid, sizeof bytes);
  return bytes;
}

StreamWords::StreamWords() {
  find(write_, "cuStreamWriteValue32", cuda_11_7);
  find(wait_, "cuStreamWaitValue32", cuda_11_7);
}

void StreamWords::write(CUstream stream, std::uint32_t* word, std::uint32_t value) const {
  check(write_(stream, address_of(word), value, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue32");
}

void StreamWords::wait(CUstream stream, const std::uint32_t* word, std::uint32_t value) const {
  check(wait_(stream, address_of(word), value, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
}

}  // namespace holdfast::cuda

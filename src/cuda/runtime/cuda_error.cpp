#include "src/cuda/runtime/cuda_error.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::cuda {
namespace {

constexpr int contained = 226;  ///< cudaErrorContained, which CUDA 12.4 does not name

/// What to do about it; "" when nobody knows.
const char* hint_for(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaErrorMemoryAllocation:
      return "Use a smaller micro-batch or sequence, checkpoint more activations, or shard over more ranks?";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case contained:
    case cudaErrorHardwareStackError:
      return "The hardware is at fault: drain the node and have the GPU reset or replaced?";
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "A fault of a kernel, or of the GPU: look for Xid lines in dmesg; does it fail on another node "
             "too?";
    case cudaErrorSystemNotReady:
      return "Is nvidia-fabricmanager running on this node?";
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return "Do the driver's library and its kernel module have the same version? (reboot after an update)";
    case cudaErrorDevicesUnavailable:
      return "Is another process using the GPU in exclusive mode?";
    case cudaErrorNoKernelImageForDevice:
      return "Build with CMAKE_CUDA_ARCHITECTURES for this GPU?";
    case cudaErrorUnknown:
    case cudaErrorNoDevice:
      return "Has the GPU fallen off the bus? Look for Xid lines in dmesg";
    default:
      return "";
  }
}

std::string text_of(cudaError_t error) {
  return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace

bool is_lost(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case contained:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorExternalDevice:
    case cudaErrorMpsRpcFailure:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

void check(cudaError_t error, const char* call, const std::string& gpu) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would be told of it
  const std::string who = gpu.empty() ? "the GPU" : gpu;
  if (is_lost(error))
    throw Error(Exit::runtime, fmt::format("{} has failed: {}", who, text_of(error)),
                fmt::format("{} returned it; it may come from any work before", call), hint_for(error));
  throw Error(Exit::runtime, fmt::format("{} failed on {}", call, who), text_of(error), hint_for(error));
}

void check_at_end(cudaError_t error, const char* call) noexcept {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  // cudaErrorCudartUnloading: the process is ending and the driver has freed everything itself.
  if (!is_lost(error) && error != cudaErrorCudartUnloading)
    log::warn("{} failed while tidying up ({})", call, text_of(error));
}

std::string describe_gpu(int index, const std::string& uuid, const std::string& bus) {
  return fmt::format("GPU {} ({}, {})", index, uuid, bus);
}

}  // namespace holdfast::cuda

#pragma once
// Which device a rank computes on. The CPU is part of the program; CUDA is a module that is loaded when it is
// wanted, so that the same program starts where no CUDA library exists. There may be a module for each major
// release of CUDA: the newest is taken that the driver serves and whose libraries are here.
#include <memory>
#include <string_view>
#include <vector>

#include "src/base/bundle.hpp"
#include "src/device/device.hpp"

namespace holdfast::device {

/// `wanted`: "cpu", "cuda", or "auto": CUDA where it can be used, else the CPU. The log says which it is and,
/// for auto, why. Throws Error (usage) for another word, and Unavailable when `cuda` is wanted and cannot be
/// had: the module is not there, a library that it needs is not, it is of another build; no driver, one that
/// is too old, no GPU that is visible or new enough, fewer GPUs than ranks of this node. The module is what
/// $HOLDFAST_CUDA_MODULE names, else one of cuda_modules().
std::unique_ptr<Device> open_device(std::string_view wanted, const DeviceOptions& options);

/// Those of `modules` that a driver can run, in the same order. A driver runs what was built with its own
/// major release of CUDA or an older one. `driver`: the newest CUDA that it serves, as CUDA counts: 12040 for
/// 12.4; 0: not known, all are left. Throws Unavailable when none is left.
std::vector<CudaModule> modules_for(int driver, std::vector<CudaModule> modules);

/// Loads the first of `modules` whose libraries are here, for as long as the process lives, and opens its
/// device. Throws as open_device() does.
std::unique_ptr<Device> open_module(const std::vector<CudaModule>& modules, const DeviceOptions& options);

}  // namespace holdfast::device

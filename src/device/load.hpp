#pragma once
// Which device a rank computes on. The CPU is part of the program; CUDA is a module that is loaded when it is
// wanted, so that the same program starts where no CUDA library exists.
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "src/device/device.hpp"

namespace holdfast::device {

/// `wanted`: "cpu", "cuda", or "auto": CUDA where it can be used, else the CPU. The log says which it is and,
/// for auto, why. Throws Error (usage) for another word, and Unavailable when `cuda` is wanted and cannot be
/// had: the module is not there, a library that it needs is not, it is of another build; no driver, one that
/// is too old, no GPU that is visible or new enough, fewer GPUs than ranks of this node.
std::unique_ptr<Device> open_device(std::string_view wanted, const DeviceOptions& options);

/// Where the CUDA module is looked for, in this order: what $HOLDFAST_CUDA_MODULE names and nothing else when
/// it is set; else beside `program`, and in ../lib/holdfast from there.
std::vector<std::filesystem::path> module_places(const std::filesystem::path& program);

/// Loads a module for as long as the process lives, and opens its device. Throws as open_device() does.
std::unique_ptr<Device> open_module(const std::filesystem::path& module, const DeviceOptions& options);

}  // namespace holdfast::device

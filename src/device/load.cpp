#include "src/device/load.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

#include "src/base/bundle.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/device/build_stamp.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::device {
namespace {

namespace fs = std::filesystem;
constexpr const char* module_name = "libholdfast-cuda.so";

std::unique_ptr<Device> open_cuda(const DeviceOptions& options) {
  const auto places = module_places(program_path());
  std::string looked;
  for (const auto& place : places) {
    if (files::exists_or_fail(place)) return open_module(place, options);
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  throw Unavailable(Exit::runtime, "there is no CUDA backend", "looked for " + looked,
                    "Build Holdfast where CUDA, cuDNN and NCCL are installed, or choose the device cpu?");
}

/// A driver is loaded here: whoever computes on the CPU of such a machine should not overlook it.
bool has_gpu_driver() { return files::is_there("/dev/nvidiactl"); }

std::unique_ptr<Device> open_auto(const DeviceOptions& options) {
  std::string why;
  try {
    auto device = open_cuda(options);
    if (options.local_rank == 0) log::info("device: {}", device->describe());
    return device;
  } catch (const Unavailable& error) {
    why = error.what();
  }
  auto device = make_cpu_device(options);
  if (options.local_rank == 0) {
    const std::string line = fmt::format("device: {}, not CUDA: {}", device->describe(), why);
    has_gpu_driver() ? log::warn(line) : log::info(line);
  }
  return device;
}

template <class Function>
Function* find(void* library, const char* symbol, const fs::path& module) {
  auto* function = reinterpret_cast<Function*>(::dlsym(library, symbol));
  if (!function)
    throw Unavailable(Exit::runtime, fmt::format("{} is no module of Holdfast", module.string()),
                      fmt::format("it has no {}", symbol));
  return function;
}

}  // namespace

std::vector<fs::path> module_places(const fs::path& program) {
  if (const auto named = env::get("HOLDFAST_CUDA_MODULE")) return {*named};
  const fs::path folder = program.parent_path();
  return {folder / module_name, (folder / "../lib/holdfast" / module_name).lexically_normal()};
}

std::unique_ptr<Device> open_module(const fs::path& module, const DeviceOptions& options) {
  // Never unloaded: its code is behind objects, exceptions and threads that may outlive the device.
  void* library = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* why = ::dlerror();
    throw Unavailable(
        Exit::runtime, "the CUDA backend cannot be loaded", why ? why : module.string(),
        "Install the CUDA libraries that it was built with, or name their folders in LD_LIBRARY_PATH?");
  }
  const std::string stamp = find<StampFunction>(library, stamp_symbol, module)();
  if (stamp != build_stamp())
    throw Unavailable(Exit::runtime, fmt::format("{} belongs to another build of Holdfast", module.string()),
                      fmt::format("it is of '{}', this program of '{}'", stamp, build_stamp()),
                      "Install both from the same build?");
  return std::unique_ptr<Device>(
      find<OpenFunction>(library, open_symbol, module)(options, log::speaker().c_str()));
}

std::unique_ptr<Device> open_device(std::string_view wanted, const DeviceOptions& options) {
  if (wanted == "auto") return open_auto(options);
  constexpr std::array<std::string_view, 3> known{"auto", "cpu", "cuda"};
  if (wanted != "cpu" && wanted != "cuda") {
    const std::string nearest = nearest_name(wanted, known);
    throw Error(Exit::usage, fmt::format("there is no device '{}'", wanted), "known are auto, cpu and cuda",
                nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
  }
  auto device = wanted == "cpu" ? make_cpu_device(options) : open_cuda(options);
  if (options.local_rank == 0) log::info("device: {}", device->describe());
  return device;
}

}  // namespace holdfast::device

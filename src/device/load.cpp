#include "src/device/load.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/device/build_stamp.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::device {
namespace {

namespace fs = std::filesystem;

/// The newest CUDA that the driver serves, see modules_for().
int cuda_of_driver() {
  // Read when the driver starts. As many hardware queues as there are: in a queue of its own, a stream that
  // waits for a peer holds up no other.
  if (!env::get("CUDA_DEVICE_MAX_CONNECTIONS")) env::set("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  return get_version && get_version(&version) == 0 ? version : 0;
}

std::unique_ptr<Device> open_cuda(const DeviceOptions& options) {
  std::vector<CudaModule> modules;
  std::string looked;
  if (const auto named = env::get("HOLDFAST_CUDA_MODULE")) {
    looked = *named;
    if (files::exists_or_fail(*named)) modules = {{.file = *named}};
  } else {
    const fs::path program = program_path();
    modules = cuda_modules(program);
    looked = "libholdfast-cuda-RELEASE.so";
    for (const auto& folder : cuda_folders(program))
      looked += (folder == program.parent_path() ? " in " : " and ") + folder.string();
  }
  if (modules.empty())
    throw Unavailable(Exit::runtime, "there is no CUDA backend", "looked for " + looked,
                      "Build Holdfast where CUDA, cuDNN and NCCL are installed, or choose the device cpu?");
  return open_module(modules_for(cuda_of_driver(), std::move(modules)), options);
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

std::vector<CudaModule> modules_for(int driver, std::vector<CudaModule> modules) {
  if (driver == 0) return modules;
  std::string needs;
  int oldest = 0;
  std::erase_if(modules, [&](const CudaModule& module) {
    needs += fmt::format("; {} needs CUDA {}", module.file.string(), module.release);
    oldest = module.release;
    return module.release > driver / 1000;
  });
  if (modules.empty())
    throw Unavailable(
        Exit::runtime, "the NVIDIA driver is too old",
        fmt::format("it serves CUDA {}.{}{}", driver / 1000, driver % 1000 / 10, needs),
        fmt::format("Install a driver for CUDA {}, or add a backend that was built with an older CUDA?",
                    oldest));
  return modules;
}

std::unique_ptr<Device> open_module(const std::vector<CudaModule>& modules, const DeviceOptions& options) {
  std::string whys;
  for (const auto& [release, file] : modules) {
    // Never unloaded: its code is behind objects, exceptions and threads that may outlive the device.
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
      const char* const why = ::dlerror();
      whys += (whys.empty() ? "" : "; ") + (why ? std::string(why) : file.string());
      continue;
    }
    if (!whys.empty() && options.local_rank == 0)
      log::info("device: {} is taken, since a newer one cannot be loaded: {}", file.string(), whys);
    const std::string stamp = find<StampFunction>(library, stamp_symbol, file)();
    if (stamp != build_stamp())
      throw Unavailable(Exit::runtime, fmt::format("{} belongs to another build of Holdfast", file.string()),
                        fmt::format("it is of '{}', this program of '{}'", stamp, build_stamp()),
                        "Install both from the same build?");
    return std::unique_ptr<Device>(
        find<OpenFunction>(library, open_symbol, file)(options, log::speaker().c_str()));
  }
  throw Unavailable(
      Exit::runtime, "the CUDA backend cannot be loaded", whys,
      "Install the CUDA libraries that it was built with, or name their folders in LD_LIBRARY_PATH?");
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

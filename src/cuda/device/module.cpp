// The module's two functions: what is here, which GPU is this rank's, what is near it, and the device made of
// the real parts.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <limits.h>
#include <unistd.h>

#include "src/base/env.hpp"
#include "src/base/log.hpp"
#include "src/cuda/comm/real_nccl.hpp"
#include "src/cuda/device/cuda_device.hpp"
#include "src/cuda/runtime/binding.hpp"
#include "src/cuda/runtime/cuda_error.hpp"
#include "src/cuda/runtime/cuda_runtime.hpp"
#include "src/cuda/runtime/gpu_health.hpp"
#include "src/cuda/runtime/which_gpu.hpp"
#include "src/device/build_stamp.hpp"
#include "src/device/module_interface.hpp"

namespace holdfast::cuda {
namespace {

constexpr const char* sysfs = "/sys";

/// Touches no GPU: a context exists only once one was chosen.
VisibleGpus look(const nvml::Library& library) {
  VisibleGpus visible;
  check(cudaDriverGetVersion(&visible.cuda_of_driver), "cudaDriverGetVersion");
  visible.driver = library.driver();
  visible.on_node = library.count().value_or(-1);
  const auto shown = env::get("CUDA_VISIBLE_DEVICES");
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  switch (error) {
    case cudaSuccess:
      break;
    // The machine has none that could be used; anything else means that one is broken.
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      visible.failure = fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
      if (shown) visible.failure += fmt::format("; CUDA_VISIBLE_DEVICES is '{}'", *shown);
      return visible;
    default:
      check(error, "cudaGetDeviceCount");
  }
  for (int index = 0; index < count; ++index) {
    const GpuTraits facts = cuda_facts(index);
    visible.gpus.push_back({facts.name, facts.bus, facts.major, facts.minor});
  }
  visible.one_was_given = count == 1 && shown.has_value();
  return visible;
}

std::vector<int> cpus_near(const nvml::Library& library, const std::string& bus) {
  auto cpus = near_cpus(sysfs, bus);
  if (!cpus.empty()) return cpus;
  const auto gpu = library.by_bus(bus);
  return gpu ? library.near_cpus(*gpu) : cpus;
}

/// Binds this thread, and those that it starts, to CPUs near the GPU. What was done, for the log.
std::string bind_cpus(const nvml::Library& library, const VisibleGpus& visible,
                      const device::DeviceOptions& options) {
  std::vector<std::string> buses;
  for (const auto& gpu : visible.gpus) buses.push_back(gpu.bus);
  const Users users =
      users_of(buses, visible.one_was_given, options.local_rank, options.local_ranks, gpus_of(sysfs));
  std::vector<std::vector<int>> near;
  for (const auto& bus : users.gpus) near.push_back(cpus_near(library, bus));
  const auto allowed = allowed_cpus();
  const auto cpus = cpus_to_bind(near[users.me], share_of(sysfs, near, users.me), allowed);
  if (cpus.empty()) return fmt::format("CPUs {} as before", cpus_text(allowed));
  return bind_to(cpus) ? fmt::format("CPUs {}", cpus_text(cpus)) : "CPUs as before (binding was refused)";
}

/// Tells NCCL which network cards are for GPUs, unless somebody has. What was done, for the log.
std::string choose_nics() {
  constexpr const char* variable = "NCCL_IB_HCA";
  if (const auto chosen = env::get(variable)) return fmt::format("{}={} as given", variable, *chosen);
  std::string names;
  for (const auto& nic : gpu_nics(sysfs)) names += (names.empty() ? "" : ",") + nic;
  if (names.empty()) return "no RDMA device near a GPU";
  env::set(variable, "=" + names);  // a leading '=' asks for exact names
  return fmt::format("{}=={}", variable, names);
}

/// NCCL gives a GPU to one rank of a host. Ranks that share one are on hosts of their own for it, and
/// exchange over sockets; unless NCCL itself was told that they share (2.30 and newer).
void let_nccl_share(int local_rank) {
  if (env::get("NCCL_HOSTID") || env::get("NCCL_MULTI_RANK_GPU_ENABLE")) return;
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof host - 1);
  env::set("NCCL_HOSTID", fmt::format("{}, rank {}", host, local_rank));
  log::info("ranks share GPUs: each is a host of its own to NCCL, which sends over sockets between them");
}

device::Device* open(const device::DeviceOptions& options) {
  const nvml::Library library;
  const VisibleGpus visible = look(library);
  const bool share = env::get_or("HOLDFAST_SHARE_GPU", "") == "1";
  if (share && options.local_ranks > static_cast<int>(visible.gpus.size()))
    let_nccl_share(options.local_rank);
  const int index = which_gpu(visible, options, share);
  const std::string cpus = bind_cpus(library, visible, options);  // before the driver starts threads
  const std::string nics = choose_nics();                         // before NCCL reads it
  CudaParts parts;
  parts.runtime = make_cuda_runtime(index, visible.driver.empty()
                                               ? fmt::format("for CUDA {}", visible.cuda_of_driver / 1000)
                                               : visible.driver);
  const GpuTraits& facts = parts.runtime->facts();
  const std::string name = describe_gpu(index, facts.uuid, facts.bus);
  const GpuHealth health = health_of(library, facts.bus);
  const std::string state = to_text(health);
  log::info("{}: {}{}; {}; {}", name, facts.name, state.empty() ? "" : ", " + state, cpus, nics);
  for (const auto& warning : warnings(health)) log::warn("{}: {}", name, warning);

  parts.gemm = make_cublas_gemm(*parts.runtime, options.deterministic);
  parts.attention = make_cudnn_attention(*parts.runtime, options.deterministic);
  parts.nccl = make_real_nccl();
  parts.share_gpu = share;
  // For tests: as if only so many ranks shared a node, so that NCCL joins the GPUs of one machine.
  if (const auto node_ranks = env::get_integer("HOLDFAST_NODE_RANKS").value_or(0); node_ranks > 0)
    parts.node = static_cast<std::uint64_t>(options.local_rank / node_ranks) + 1;
  return std::make_unique<CudaDevice>(std::move(parts), options).release();
}

}  // namespace
}  // namespace holdfast::cuda

const char* holdfast_module_stamp() { return holdfast::device::build_stamp().data(); }

holdfast::device::Device* holdfast_module_open(const holdfast::device::DeviceOptions& options,
                                               const char* speaker) {
  holdfast::log::start(speaker);
  return holdfast::cuda::open(options);
}

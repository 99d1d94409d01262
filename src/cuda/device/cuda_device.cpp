#include "src/cuda/device/cuda_device.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"
#include "src/cuda/comm/device_communicator.hpp"
#include "src/cuda/comm/device_world.hpp"
#include "src/cuda/gemm/choices.hpp"

namespace holdfast::cuda {
namespace {

/// Nobody has two ranks on one GPU without wanting it: each would get half of it, or no memory. Collective.
void check_own_gpus(comm::Communicator& host, const GpuTraits& facts) {
  const std::uint64_t mine = hash_name(facts.uuid.data(), facts.uuid.size());
  const auto gpu_of = share(host, {&mine, 1});
  std::map<std::uint64_t, std::size_t> first;
  for (std::size_t rank = 0; rank < gpu_of.size(); ++rank) {
    const auto [other, is_new] = first.emplace(gpu_of[rank], rank);
    if (is_new) continue;
    throw Error(Exit::usage, fmt::format("ranks {} and {} have the same GPU", other->second, rank),
                gpu_of[rank] == mine ? facts.uuid : "each rank needs one",
                "Show every rank all GPUs of its node (srun --gpus-per-node), or let them share with "
                "HOLDFAST_SHARE_GPU=1 (for tests)?");
  }
}

Error no_pinned_memory(std::int64_t bytes, std::string_view what, const Error& why) {
  return Error(Exit::runtime, fmt::format("no pinned host memory for {} ({} bytes)", what, bytes), why.what(),
               "Ask SLURM for more memory, or look at the limit of locked memory (ulimit -l)?");
}

}  // namespace

RuntimeMemory::~RuntimeMemory() {
  for (void* memory : on_device_) runtime_.device_free(memory);
  for (void* memory : on_host_) runtime_.host_free(memory);
}

std::byte* RuntimeMemory::device(std::int64_t bytes, std::string_view what) {
  expects(bytes >= 0, "memory has at least 0 bytes");
  on_device_.reserve(on_device_.size() + 1);
  try {
    on_device_.push_back(runtime_.device_alloc(std::max<std::int64_t>(bytes, 1)));
  } catch (const Error& error) {
    const std::int64_t free = runtime_.free_bytes();  // throws what is really wrong when the GPU is gone
    throw Error(
        Exit::runtime, fmt::format("no room on the GPU for {}", what),
        fmt::format("{} are needed, {} of {} are free; {}", size_text(bytes), size_text(free),
                    size_text(runtime_.facts().memory_bytes), error.problem()),
        "Use a smaller micro-batch or sequence, checkpoint more activations, let the host keep the moments "
        "(shard.offload), or shard over more ranks; is another process on this GPU?");
  }
  return static_cast<std::byte*>(on_device_.back());
}

std::byte* RuntimeMemory::host(std::int64_t bytes, std::string_view what) {
  expects(bytes >= 0, "memory has at least 0 bytes");
  on_host_.reserve(on_host_.size() + 1);
  try {
    on_host_.push_back(runtime_.host_alloc(std::max<std::int64_t>(bytes, 1)));
  } catch (const Error& error) {
    throw no_pinned_memory(bytes, what, error);
  }
  return static_cast<std::byte*>(on_host_.back());
}

CudaDevice::CudaDevice(CudaParts parts, const device::DeviceOptions& options)
    : parts_(std::move(parts)),
      options_(options),
      memory_(*parts_.runtime),
      // Longer than a communicator waits, whose error says for whom.
      compute_(*parts_.runtime, "compute", {.limit = 2 * options.limit}),
      side_(*parts_.runtime, "side", {.limit = 2 * options.limit}),
      kernels_(*parts_.runtime, *parts_.gemm, *parts_.attention,
               {memory_.device(CudaKernels::scratch_bytes, "the kernels' intermediate sums"),
                as_size(CudaKernels::scratch_bytes)}),
      reduce_kernels_(*parts_.runtime, *parts_.gemm, *parts_.attention, {}) {
  // Whoever waits for compute may be waiting for a peer that is gone.
  compute_.on_wait([this] { watch_.check(); });
  side_.on_wait([this] { watch_.check(); });
}

std::string CudaDevice::describe() const {
  const GpuTraits& facts = parts_.runtime->facts();
  return fmt::format("{} ({}), driver {}", facts.name, size_text(facts.memory_bytes), facts.driver);
}

std::span<std::byte> CudaDevice::allocate(std::int64_t bytes, std::string_view what) {
  std::byte* memory = memory_.device(bytes, what);
  compute_.zero(memory, bytes);
  compute_.record().wait();
  return {memory, as_size(bytes)};
}

std::span<std::byte> CudaDevice::allocate_host(std::int64_t bytes, std::string_view what) {
  std::byte* memory = memory_.host(bytes, what);
  std::fill_n(memory, bytes, std::byte{0});
  return {memory, as_size(bytes)};
}

std::byte* CudaDevice::pin(std::span<std::byte> memory) {
  const auto bytes = static_cast<std::int64_t>(memory.size());
  try {
    return static_cast<std::byte*>(parts_.runtime->host_register(memory.data(), bytes));
  } catch (const Error& error) {
    throw no_pinned_memory(bytes, "snapshots of the state", error);
  }
}

void CudaDevice::unpin(std::span<std::byte> memory) noexcept {
  parts_.runtime->host_unregister(memory.data());
}

std::unique_ptr<comm::Communicator> CudaDevice::communicator(std::unique_ptr<comm::Communicator> host) {
  if (!parts_.share_gpu) check_own_gpus(*host, parts_.runtime->facts());
  return make_device_communicator(std::move(host), *parts_.runtime, parts_.nccl.get(), watch_,
                                  {.limit = options_.limit,
                                   .recorder = options_.recorder,
                                   .explain = options_.explain,
                                   .share_gpu = parts_.share_gpu,
                                   .node = parts_.node});
}

void CudaDevice::replay(bool on) {
  replaying_ = on;
  use_graphs();
}

void CudaDevice::take_notes(bool on) {
  taking_notes_ = on;
  kernels_.take_notes(on);
  use_graphs();
}

std::string CudaDevice::choices(std::string_view known) { return parts_.gemm->choices(known); }

void CudaDevice::use_choices(std::string_view text) {
  parts_.gemm->use_choices(text);
  kernels_.set_choices(hash_choices(text));
}

}  // namespace holdfast::cuda

// A module like libholdfast-cuda-13.so whose GPU is the simulated one: holdfast-train loads it with
// $HOLDFAST_CUDA_MODULE and trains on it as it would on a real one.
//   HOLDFAST_SIMT_SEED=N         another order of everything that has none
//   HOLDFAST_SIM_MEMORY=BYTES    what the GPU has
//   HOLDFAST_SIM_FAULT="KIND RANK LAUNCHES"   see faulty_runtime.hpp
//   HOLDFAST_SIM_LUCK=N          what a search for algorithms finds
//   HOLDFAST_SHARE_GPU=1         all ranks of the node on one GPU
//   HOLDFAST_SIM_NODE_RANKS=N    as if only so many ranks shared a node: NCCL (SimNccl) joins the nodes
#include <optional>

#include "src/base/env.hpp"
#include "src/base/log.hpp"
#include "src/cuda/device/cuda_device.hpp"
#include "src/device/build_stamp.hpp"
#include "src/device/module_interface.hpp"
#include "tests/cuda/sim/faulty_runtime.hpp"
#include "tests/cuda/sim/reference_attention.hpp"
#include "tests/cuda/sim/reference_gemm.hpp"
#include "tests/cuda/sim/sim_nccl.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda {
namespace {

device::Device* open(const device::DeviceOptions& options) {
  const bool share = env::get_or("HOLDFAST_SHARE_GPU", "") == "1";
  sim::Options simulated;
  // Ranks choose their orders independently of each other.
  simulated.seed = static_cast<std::uint64_t>(env::get_integer("HOLDFAST_SIMT_SEED").value_or(1) * 1024 +
                                              options.local_rank + 1);
  simulated.device_bytes = env::get_integer("HOLDFAST_SIM_MEMORY").value_or(simulated.device_bytes);
  simulated.background = true;  // ranks wait for each other in MPI while their GPUs go on
  const auto node_ranks = static_cast<int>(env::get_integer("HOLDFAST_SIM_NODE_RANKS").value_or(0));
  const int node = node_ranks > 0 ? options.local_rank / node_ranks : 0;
  simulated.ordinal = share ? node : options.local_rank;
  std::optional<sim::Fault> fault;
  if (const auto text = env::get("HOLDFAST_SIM_FAULT")) fault = sim::fault_from_text(*text);
  if (fault && fault->rank != options.local_rank) fault.reset();
  auto runtime = std::make_unique<sim::FaultyRuntime>(simulated, fault);
  sim::SimRuntime& gpu = *runtime;

  CudaParts parts;
  parts.runtime = std::move(runtime);
  parts.gemm = std::make_unique<sim::ReferenceGemm>(
      gpu, options.deterministic,
      static_cast<std::uint64_t>(env::get_integer("HOLDFAST_SIM_LUCK").value_or(0)));
  parts.attention = std::make_unique<sim::ReferenceAttention>(gpu, options.deterministic);
  parts.nccl = std::make_unique<sim::SimNccl>(gpu);
  parts.share_gpu = share;
  if (node_ranks > 0) parts.node = static_cast<std::uint64_t>(node) + 1;
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

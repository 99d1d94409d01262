#pragma once
// The GPU as the trainer's device: one compute stream, one beside it, memory, kernels and communicators. Made
// of parts behind interfaces, so that the same class runs on the tests' simulator.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/cuda/attention/attention.hpp"
#include "src/cuda/comm/nccl.hpp"
#include "src/cuda/comm/watch.hpp"
#include "src/cuda/device/cuda_kernels.hpp"
#include "src/cuda/gemm/gemm.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "src/cuda/runtime/runtime.hpp"
#include "src/device/device.hpp"

namespace holdfast::cuda {

struct CudaParts {
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Gemm> gemm;
  std::unique_ptr<AttentionEngine> attention;
  std::unique_ptr<Nccl> nccl;  ///< null: only groups whose ranks share a node
  bool share_gpu = false;      ///< two ranks may have the same GPU
  std::uint64_t node = 0;      ///< see CommunicatorOptions
};

/// Memory of a runtime, given back in the end.
class RuntimeMemory {
 public:
  explicit RuntimeMemory(Runtime& runtime) : runtime_(runtime) {}
  ~RuntimeMemory();
  RuntimeMemory(const RuntimeMemory&) = delete;
  RuntimeMemory& operator=(const RuntimeMemory&) = delete;

  /// Not zeroed. An Error (runtime) says how much was asked for, for what, and how much is free.
  std::byte* device(std::int64_t bytes, std::string_view what);
  std::byte* host(std::int64_t bytes, std::string_view what);

 private:
  Runtime& runtime_;
  std::vector<void*> on_device_, on_host_;
};

/// Its communicators must be gone before it.
class CudaDevice final : public device::Device {
 public:
  CudaDevice(CudaParts parts, const device::DeviceOptions& options);

  std::string describe() const override;
  std::string product() const override { return parts_.runtime->facts().name; }
  std::int64_t used_bytes() override {
    return parts_.runtime->facts().memory_bytes - parts_.runtime->free_bytes();
  }
  bool is_host() const override { return false; }
  kernels::Kernels& kernels() override { return kernels_; }
  kernels::Kernels& reduce_kernels() override { return reduce_kernels_; }
  tensor::Stream& compute() override { return compute_; }
  tensor::Stream& side() override { return side_; }
  std::span<std::byte> allocate(std::int64_t bytes, std::string_view what) override;
  std::span<std::byte> allocate_host(std::int64_t bytes, std::string_view what) override;
  std::byte* pin(std::span<std::byte> memory) override;
  void unpin(std::span<std::byte> memory) noexcept override;
  /// Throws Error (usage), on all ranks, when two of them have the same GPU and may not.
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override;
  void give_up(const Error& why) noexcept override { watch_.fail(why); }
  void replay(bool on) override;
  void take_notes(bool on) override;
  std::string choices(std::string_view known) override;
  void use_choices(std::string_view text) override;

 private:
  void use_graphs() { compute_.use_graphs(replaying_ && !taking_notes_); }

  CudaParts parts_;
  device::DeviceOptions options_;
  RuntimeMemory memory_;
  Watch watch_;
  CudaStream compute_, side_;
  CudaKernels kernels_, reduce_kernels_;
  bool replaying_ = true, taking_notes_ = false;
};

}  // namespace holdfast::cuda

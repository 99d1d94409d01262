// Groups inside of a node: ranks read each other's memory, on GPUs of their own and all on one.
#include "tests/cuda/comm/communicator_cases.hpp"

namespace holdfast::cuda::test {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Peers, DeviceCommunicators,
                         ::testing::Values(Case{"gpus_of_their_own", 0, false}, Case{"one_gpu", 0, true}),
                         [](const auto& of) { return of.param.name; });

TEST(PeerGroups, ReductionsTakeWholeParts) {
  const int size = tests::session().size();
  GpuRank gpu({});
  const auto world = gpu.world();
  const std::int64_t n = 3 * size * comm::Communicator::largest_reduction;
  auto* memory = world->symmetric_memory(n * 4).data();
  SimMachine machine(gpu.runtime, gpu.compute);
  const Extent tensor{memory, n, n / size, DType::fp32};
  float* sum = machine.memory(n / size);
  OrderedSum gradients(machine, {sum}, DType::fp32, false), partial_sums(machine, {sum}, DType::fp32, false);
  world->ordered_reduce_scatter({&tensor, 1}, gradients, gpu.compute.record()).wait();
  EXPECT_EQ(gradients.reductions, 1);
  world->exchange_partial_sums({&tensor, 1}, 0, std::vector<int>(size, 1), partial_sums).wait();
  EXPECT_EQ(partial_sums.reductions, 1);
}

/// GPUs that are no peers: their ranks count as nodes of their own, and NCCL moves the bytes.
class NoPeers final : public sim::SimRuntime {
 public:
  using SimRuntime::SimRuntime;
  void* ipc_open(const IpcHandle&, std::int64_t) override {
    throw Error(Exit::runtime, "cudaIpcOpenMemHandle has failed", "peer access is not supported");
  }
};

TEST(PeerGroups, GpusThatAreNoPeersTalkThroughNccl) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank gpu({});
  // Only the last rank is refused; that is enough for its node.
  sim::SimRuntime usual({.background = true, .ordinal = rank});
  NoPeers refused({.background = true, .ordinal = rank});
  sim::SimRuntime& runtime = rank == size - 1 ? refused : usual;
  sim::SimNccl nccl(runtime);
  CudaStream compute(runtime, "compute");
  {
    const auto world = gpu.world(runtime, &nccl);
    auto* memory = reinterpret_cast<float*>(world->symmetric_memory(4096 * size).data());
    const Extent tensor{memory, 64 * size, 64, DType::fp32};
    put(compute, memory + 64 * rank, std::vector<float>(64, static_cast<float>(rank) + 1));
    world->all_gather({&tensor, 1}, compute.record()).wait();
    for (int r = 0; r < size; ++r) EXPECT_EQ(get(compute, memory + 64 * r, 1)[0], static_cast<float>(r) + 1);
    EXPECT_EQ(nccl.launches() > 0, size > 1);
  }
  {
    const auto world = gpu.world(runtime, nullptr);
    auto* memory = world->symmetric_memory(4096).data();
    const Extent tensor{memory, 64, 64, DType::fp32};
    const std::string error = error_of([&] { world->all_gather({&tensor, 1}).wait(); });
    EXPECT_THAT(error, HasSubstr(size > 1 ? "this build has no NCCL" : "no error"));
    world->barrier();
  }
}

TEST(PeerGroups, MoreMemoryThanThereIsIsAnErrorOnAllRanks) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank gpu({});
  const auto world = gpu.world();
  if (rank == size - 1) gpu.runtime.set_device_bytes(1 << 20);
  const std::string error = error_of([&] { world->symmetric_memory(4 << 20); });
  EXPECT_THAT(error, HasSubstr("no 4.00 MiB of memory that the ranks' GPUs share"));
  if (rank != size - 1) {
    EXPECT_THAT(error, HasSubstr("member " + std::to_string(size - 1)));
  }
  world->barrier();
}

}  // namespace
}  // namespace holdfast::cuda::test

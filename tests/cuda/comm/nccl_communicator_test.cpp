// Groups over several nodes: NCCL (here its stand-in) moves the bytes, the additions are ours.
#include "tests/cuda/comm/communicator_cases.hpp"

namespace holdfast::cuda::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Nccl, DeviceCommunicators,
                         ::testing::Values(Case{"a_node_each", 1, false}, Case{"nodes_of_two", 2, false}),
                         [](const auto& of) { return of.param.name; });

GpuRank::Options apart() {
  GpuRank::Options out;
  out.ranks_per_node = 1;
  return out;
}

TEST(NcclGroups, ManyRoundsThroughASmallInbox) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank gpu(apart());  // 64 KiB
  const auto world = gpu.world();
  const std::int64_t n = 100'003;
  auto* memory = reinterpret_cast<float*>(world->symmetric_memory((n + 64 * size) * 4).data());
  std::vector<float> gradient(n);
  for (std::int64_t i = 0; i < n; ++i) gradient[i] = static_cast<float>((i * 7 + rank * 31) % 251);
  put(gpu.compute, memory, gradient);
  const Extent tensor{memory, n, slice_stride(n, size), DType::fp32};
  const std::int64_t part = part_of(tensor, rank);
  SimMachine machine(gpu.runtime, gpu.compute);
  float* sum = machine.memory(tensor.part);
  OrderedSum reducer(machine, {sum}, DType::fp32, false);
  const int before = gpu.nccl.launches();
  world->ordered_reduce_scatter({&tensor, 1}, reducer, gpu.compute.record()).wait();
  const std::vector<float> out = get(gpu.compute, sum, part);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < part; ++i) {
    float expected = 0;
    for (int r = 0; r < size; ++r)
      expected += static_cast<float>(((rank * tensor.part + i) * 7 + r * 31) % 251);
    wrong += out[i] != expected;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(world->wire().ordered_reduce_scatter, (n - part) * 4);
  if (size > 1) {
    EXPECT_GT(gpu.nccl.launches() - before, 4);
    EXPECT_EQ(gpu.nccl.registrations(), 1);
  }
}

/// Issue 39: parts that do not divide the tensor went by sends to all members.
TEST(NcclGroups, UnevenPartsAreGatheredWhole) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank gpu(apart());
  const auto world = gpu.world();
  const std::int64_t n = 64 * size + 1, part = slice_stride(n, size);
  auto* at = reinterpret_cast<float*>(world->symmetric_memory(part * size * 4).data());
  const auto group = world->split(0, rank, "uneven");  // which tries NCCL out, with a gather and sends
  const Extent tensor{at, n, part, DType::fp32};
  std::vector<float> own(part_of(tensor, rank));
  for (std::size_t i = 0; i < own.size(); ++i)
    own[i] = static_cast<float>(rank * part) + static_cast<float>(i) + 0.5f;
  put(gpu.compute, at + rank * part, own);
  const int gathers = gpu.nccl.all_gathers(), sends = gpu.nccl.sends();
  group->all_gather({&tensor, 1}, gpu.compute.record()).wait();
  const std::vector<float> all = get(gpu.compute, at, n);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(all[i], static_cast<float>(i) + 0.5f);
  EXPECT_EQ(gpu.nccl.all_gathers() - gathers, size > 1 ? 1 : 0);
  EXPECT_EQ(gpu.nccl.sends(), sends);
}

TEST(NcclGroups, DifferentVersionsAreNamed) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank::Options options = apart();
  if (rank == size - 1) options.nccl_version = 22703;
  GpuRank gpu(options);
  const auto world = gpu.world();
  const std::string error = error_of([&] { world->split(0, rank, "mixed"); });
  if (size == 1) {
    EXPECT_EQ(error, "no error");
  } else {
    EXPECT_THAT(error,
                AllOf(HasSubstr("the ranks of mixed have different versions of NCCL"),
                      HasSubstr("rank 0 has 2.28.9, rank " + std::to_string(size - 1) + " has 2.27.3")));
  }
  world->barrier();
}

TEST(NcclGroups, NoMemoryForTheInboxIsAnErrorOnAllRanks) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank gpu(apart());
  const auto world = gpu.world();
  if (rank == size - 1) gpu.runtime.set_device_bytes(1 << 14);
  const std::string error = error_of([&] { world->split(0, rank, "poor"); });
  if (size == 1) {
    EXPECT_EQ(error, "no error");
  } else if (rank != size - 1) {
    EXPECT_THAT(error,
                HasSubstr("no memory for what comes from other nodes (member " + std::to_string(size - 1)));
  } else {
    EXPECT_NE(error, "no error");
  }
  world->barrier();
}

TEST(NcclGroups, RanksThatShareAGpuAreRefused) {
  const int rank = tests::session().rank(), size = tests::session().size();
  GpuRank::Options options = apart();
  options.one_gpu = true;  // as a pod would show it that gives each rank a node of its own
  GpuRank gpu(options);
  const auto world = gpu.world();
  const std::string error = error_of([&] { world->split(0, rank, "crowded"); });
  EXPECT_THAT(error,
              HasSubstr(size > 1 ? "ranks of crowded share a GPU and are on several nodes" : "no error"));
  world->barrier();
}

TEST(NcclGroups, RanksThatShareAGpuAreTakenWhereThatIsWanted) {
  const int rank = tests::session().rank();
  GpuRank::Options options = apart();
  options.one_gpu = options.share_gpu = true;
  GpuRank gpu(options);
  const auto world = gpu.world();
  EXPECT_EQ(error_of([&] { world->split(0, rank, "crowded"); }), "no error");
  world->barrier();
}

}  // namespace
}  // namespace holdfast::cuda::test

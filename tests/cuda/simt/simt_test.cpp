// The fibers that run kernels under g++: what they compute is right in every order, and what a kernel forgets
// shows.
#include "src/cuda/simt/simt.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/cuda/sim/finding.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::finish;
using test::gpu;
using test::stream;
using testing::HasSubstr;

/// One block per row: the sum of a row, warps first. `Barrier` false forgets the barrier.
template <bool Barrier>
__global__ void row_sums(float* sums, const float* x, int columns) {
  SIMT_SHARED(float, part, 8);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += static_cast<int>(blockDim.x))
    sum += x[static_cast<std::int64_t>(blockIdx.x) * columns + i];
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(~0u, sum, bits);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  if (Barrier) __syncthreads();
  if (threadIdx.x != 0) return;
  float all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) all += part[w];
  sums[blockIdx.x] = all;
}

template <bool Barrier>
std::vector<float> sums_of(const std::vector<float>& x, int rows, int columns) {
  DeviceArray<float> in(x), out(as_size(rows));
  gpu().declare(stream(), "row_sums", {reads(in.data(), in.bytes()), writes(out.data(), out.bytes())});
  SIMT_LAUNCH((row_sums<Barrier>), static_cast<unsigned>(rows), 256, stream(), out.data(), in.data(),
              columns);
  return out.download();
}

TEST(Simt, RowSumsAreTheSameInEveryOrder) {
  const int rows = 20, columns = 1000;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns);
  for (float& value : x) value = normal(random);
  std::vector<float> first;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    test::reseed(seed);
    const std::vector<float> sums = sums_of<true>(x, rows, columns);
    for (int r = 0; r < rows; ++r)
      EXPECT_NEAR(sums[r], std::accumulate(x.begin() + r * columns, x.begin() + (r + 1) * columns, 0.0),
                  1e-3);
    if (first.empty()) first = sums;
    EXPECT_EQ(first, sums);
  }
}

TEST(Simt, AMissingBarrierReadsPoison) {
  const std::vector<float> x(20 * 1000, 1.0f);
  int wrong = 0;
  for (float sum : sums_of<false>(x, 20, 1000)) wrong += std::isnan(sum);
  EXPECT_GT(wrong, 10);
}

__global__ void half_meets(int* out) {
  if (threadIdx.x < 16) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void two_places(int* out) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void half_shuffles(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
}
__global__ void not_in_mask(int* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1); }
__global__ void too_far(int* out) {
  SIMT_SHARED(int, few, 4);
  few[threadIdx.x / 4] = 1;  // block of 32: 8 elements
  out[threadIdx.x] = 1;
}
__global__ void too_much(int* out) {
  SIMT_SHARED(int, many, 13000);
  many[threadIdx.x] = 1;
  out[threadIdx.x] = many[threadIdx.x];
}

/// What the simulator says about a kernel of one block of 32 threads.
std::string finding_of(void (*kernel)(int*), dim3 grid = 1, dim3 block = 32) {
  sim::SimRuntime runtime;
  const StreamHandle line = runtime.stream_create(Runtime::Priority::normal);
  auto* out = static_cast<int*>(runtime.device_alloc(4096));
  try {
    runtime.declare(line, "kernel", {writes(out, 4096)});
    SIMT_LAUNCH(kernel, grid, block, line, out);
    runtime.progress(10);
  } catch (const sim::Finding& finding) {
    return finding.what();
  }
  return "";
}

TEST(Simt, ThreadsThatDoNotMeetAreFound) {
  EXPECT_THAT(finding_of(half_meets), HasSubstr("which only 16 of 32 threads reach"));
  EXPECT_THAT(finding_of(two_places), HasSubstr("meet at different barriers"));
  EXPECT_THAT(finding_of(half_shuffles), HasSubstr("lanes 0xffffffff of its warp, which do not all come"));
  EXPECT_THAT(finding_of(not_in_mask), HasSubstr("is not in the mask 0xffff"));
}

TEST(Simt, SharedMemoryHasEnds) {
  EXPECT_THAT(finding_of(too_far), HasSubstr("wrote beyond its shared array few of 16 bytes"));
  EXPECT_THAT(finding_of(too_much), HasSubstr("bytes of shared memory, which has 49152"));
}

__global__ void writes_one(int* out) { out[0] = 1; }

TEST(Simt, LaunchesThatAGpuRefusesAreFound) {
  EXPECT_THAT(finding_of(writes_one, 0, 32), HasSubstr("which a GPU refuses"));
  EXPECT_THAT(finding_of(writes_one, dim3(1, 65536), 32), HasSubstr("which a GPU refuses"));
  EXPECT_THAT(finding_of(writes_one, 1, 1025), HasSubstr("which a GPU refuses"));
  EXPECT_THAT(finding_of(writes_one, 1, dim3(32, 32, 2)), HasSubstr("which a GPU refuses"));
  EXPECT_EQ(finding_of(writes_one), "");
}

__global__ void every_index(unsigned* seen) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  atomicAdd(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1u);
}

TEST(Simt, EveryThreadOfEveryBlockRunsOnce) {
  DeviceArray<unsigned> seen(std::vector<unsigned>(3 * 5 * 2 * 4 * 3 * 6, 0));
  gpu().declare(stream(), "every_index", {writes(seen.data(), seen.bytes())});
  SIMT_LAUNCH(every_index, dim3(3, 5, 2), dim3(4, 3, 6), stream(), seen.data());
  for (unsigned count : seen.download()) EXPECT_EQ(count, 1u);
}

struct Lanes {
  float down, segment_down, idx, beyond;
  double wide;
  unsigned votes;
};
__global__ void lanes(Lanes* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto value = static_cast<float>(threadIdx.x);
  Lanes& mine = out[threadIdx.x];
  mine.down = __shfl_down_sync(~0u, value, 3);
  mine.segment_down = __shfl_down_sync(~0u, value, 1, 8);
  mine.idx = __shfl_sync(~0u, value, 5);
  mine.beyond = __shfl_sync(~0u, value, 20);
  mine.wide = __shfl_xor_sync(~0u, static_cast<double>(value), 1);
  mine.votes = __ballot_sync(~0u, lane % 3 == 0);
  __syncwarp();
}

TEST(Simt, ShufflesFollowCuda) {
  DeviceArray<Lanes> out(48);  // a whole warp and half of one
  gpu().declare(stream(), "lanes", {writes(out.data(), out.bytes())});
  SIMT_LAUNCH(lanes, 1, 48, stream(), out.data());
  const std::vector<Lanes> got = out.download();
  unsigned votes = 0;
  for (int lane = 0; lane < 32; lane += 3) votes |= 1u << lane;
  for (int t = 0; t < 48; ++t) {
    const int first = t / 32 * 32, lane = t % 32;
    if (first == 0 || lane < 13) {
      EXPECT_EQ(got[t].down, lane + 3 < 32 ? t + 3 : t);
    }
    EXPECT_EQ(got[t].segment_down, lane % 8 < 7 ? t + 1 : t);
    EXPECT_EQ(got[t].idx, first + 5);
    EXPECT_EQ(got[t].wide, t ^ 1);
    EXPECT_EQ(got[t].votes, first == 0 ? votes : votes & 0xffff);
    // Lane 20 of the half warp does not exist.
    EXPECT_TRUE(first == 0 ? got[t].beyond == 20 : std::isnan(got[t].beyond));
  }
}

/// Whichever thread comes last tells: integer atomics in any order give the same.
__global__ void atomics(unsigned* words, unsigned long long* wide) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMax(&words[0], i);
  atomicMin(&words[1], i);
  atomicOr(&words[2], 1u << i % 32);
  atomicAdd(&wide[0], 1ull << 32);
  __threadfence();
}

TEST(Simt, IntegerAtomics) {
  DeviceArray<unsigned> words(std::vector<unsigned>{0, 1000, 0});
  DeviceArray<unsigned long long> wide(std::vector<unsigned long long>{0});
  gpu().declare(stream(), "atomics",
                {writes(words.data(), words.bytes()), writes(wide.data(), wide.bytes())});
  SIMT_LAUNCH(atomics, 7, 40, stream(), words.data(), wide.data());
  EXPECT_EQ(words.download(), (std::vector<unsigned>{279, 0, ~0u}));
  EXPECT_EQ(wide.download()[0], 280ull << 32);
}

TEST(Simt, RoundingIntrinsics) {
  EXPECT_EQ(__umul64hi(~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clzll(1), 63);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(__fadd_rn(__fmul_rn(1 + 0x1p-12f, 1 + 0x1p-12f), -1), 0x1p-11f);
}

}  // namespace
}  // namespace holdfast::cuda

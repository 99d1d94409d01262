// The trainer's device made of the simulator's parts.
#include "src/cuda/device/cuda_device.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/comm/solo_communicator.hpp"
#include "tests/cuda/sim/reference_attention.hpp"
#include "tests/cuda/sim/reference_gemm.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t mib = 1 << 20;

/// A device on a GPU of its own, and what tests turn.
struct Simulated {
  explicit Simulated(bool share_gpu = false, std::uint64_t luck = 0) {
    auto runtime_part = std::make_unique<sim::SimRuntime>(sim::Options{.device_bytes = 256 * mib});
    runtime = runtime_part.get();
    auto gemm_part = std::make_unique<sim::ReferenceGemm>(*runtime, false, luck);
    gemm = gemm_part.get();
    auto attention = std::make_unique<sim::ReferenceAttention>(*runtime);
    device = std::make_unique<CudaDevice>(
        CudaParts{std::move(runtime_part), std::move(gemm_part), std::move(attention), nullptr, share_gpu},
        device::DeviceOptions{.limit = std::chrono::seconds(20)});
  }
  sim::SimRuntime* runtime;
  sim::ReferenceGemm* gemm;
  std::unique_ptr<CudaDevice> device;
};

template <class Call>
std::string what(Call call, Exit exit = Exit::runtime) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), exit);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CudaDevice, MemoryIsZeroedAlignedAndStays) {
  Simulated s;
  std::vector<std::span<std::byte>> pieces;
  for (const std::int64_t bytes : {0, 1, 4097, 1 << 20}) {
    for (const bool host : {false, true}) {
      const auto piece =
          host ? s.device->allocate_host(bytes, "a test") : s.device->allocate(bytes, "a test");
      ASSERT_EQ(piece.size(), as_size(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data()) % 4096, 0u);
      std::vector<std::byte> content(piece.size(), std::byte{1});
      s.device->compute().download(content.data(), piece.data(), bytes);
      EXPECT_TRUE(std::all_of(content.begin(), content.end(), [](std::byte b) { return b == std::byte{0}; }));
    }
  }
  EXPECT_FALSE(s.device->is_host());
  EXPECT_THAT(s.device->describe(),
              AllOf(HasSubstr(s.runtime->facts().name), HasSubstr("(256.0 MiB), driver ")));
}

TEST(CudaDevice, WhatDoesNotFitIsSaidWithSizesAndPurpose) {
  Simulated s;
  const std::string error = what([&] { s.device->allocate(std::int64_t{3} << 30, "the moments"); });
  EXPECT_THAT(error,
              AllOf(HasSubstr("no room on the GPU for the moments"), HasSubstr("3.00 GiB are needed, "),
                    HasSubstr(" of 256.0 MiB are free"), HasSubstr("smaller micro-batch")));
  // And the device goes on.
  EXPECT_EQ(s.device->allocate(mib, "less").size(), as_size(mib));
}

TEST(CudaDevice, KernelsAndCopiesRunBesideEachOther) {
  Simulated s;
  auto& device = *s.device;
  constexpr std::int64_t n = 5000;
  std::vector<float> values(n);
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 251) - 100.5f;
  auto* wide = reinterpret_cast<float*>(device.allocate(n * 4, "fp32").data());
  auto* narrow = reinterpret_cast<tensor::Bf16*>(device.allocate(n * 2, "bf16").data());
  auto* mirror = reinterpret_cast<tensor::Bf16*>(device.allocate_host(n * 2, "mirror").data());
  device.compute().upload(wide, values.data(), n * 4);
  device.kernels().convert(device.compute(), narrow, tensor::DType::bf16, wide, tensor::DType::fp32, n);
  device.side().wait(device.compute().record());
  device.side().copy(mirror, narrow, n * 2);
  device.side().record().wait();
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(mirror[i].bits, tensor::to_bf16(values[i]).bits);
}

TEST(CudaDevice, CopiesToMemoryOfSomebodyElseWhileItIsPinned) {
  Simulated s;
  auto& device = *s.device;
  constexpr std::size_t bytes = 8192;
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(shared), bytes);
  const std::vector<std::byte> values(bytes, std::byte{5});
  std::byte* const from = device.allocate(bytes, "a test").data();
  device.compute().upload(from, values.data(), bytes);
  std::byte* const to = device.pin(memory);
  device.side().wait(device.compute().record());
  device.side().copy(to, from, bytes);
  device.side().record().wait();
  EXPECT_TRUE(std::ranges::equal(memory, values));
  device.unpin(memory);
  EXPECT_THROW((device.side().copy(to, from, bytes), device.side().record().wait()), std::exception);
  ::munmap(shared, bytes);
}

/// n x n products by the device, some with the CPU's sums over k and some with the search's luck.
struct Products {
  static constexpr std::int64_t n = 96;
  explicit Products(Simulated& s) : device(*s.device) {
    std::vector<float> values(n * n);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(mix64(i + 1) % 2000) / 1000.0f - 1.0f;
    const auto put = [&] {
      auto* at = reinterpret_cast<float*>(device.allocate(n * n * 4, "operand").data());
      device.compute().upload(at, values.data(), n * n * 4);
      return at;
    };
    a = put();
    b = put();
    y = put();
  }
  void multiply() {
    device.kernels().matmul(
        device.compute(), tensor::dense(y, n, n), tensor::dense(static_cast<const float*>(a), n, n), false,
        tensor::dense(static_cast<const float*>(b), n, n), false, kernels::Write::replace);
  }
  std::vector<float> result() {
    std::vector<float> out(n * n);
    device.compute().download(out.data(), y, n * n * 4);
    return out;
  }
  CudaDevice& device;
  float *a, *b, *y;
};

TEST(CudaDevice, NotesEnqueueNothingAndChoicesReachKernelsAndIdentity) {
  Simulated s(false, 1);
  Products products(s);
  const std::string before = s.device->kernels().identity(tensor::DType::fp32);
  s.device->compute().record().wait();
  const auto run = s.runtime->operations_run();
  s.device->take_notes(true);
  const std::uint64_t key[] = {1};
  for (int i = 0; i < 4; ++i)  // would be recorded and replayed if notes were not taken
    s.device->compute().repeat(key, [&] { products.multiply(); });
  s.device->take_notes(false);
  s.device->compute().record().wait();
  EXPECT_EQ(s.runtime->operations_run(), run + 1);  // the event
  EXPECT_EQ(static_cast<CudaStream&>(s.device->compute()).graphs(), 0u);

  const std::string found = s.device->choices("");
  EXPECT_GT(s.gemm->searches(), 0);
  EXPECT_EQ(s.device->choices(found), found);  // nothing new was noted
  s.device->use_choices(found);
  EXPECT_NE(s.device->kernels().identity(tensor::DType::fp32), before);

  // Graphs again, with the same bits as without.
  products.multiply();
  const auto plain = products.result();
  for (int i = 0; i < 4; ++i) s.device->compute().repeat(key, [&] { products.multiply(); });
  EXPECT_EQ(products.result(), plain);
  EXPECT_EQ(static_cast<CudaStream&>(s.device->compute()).graphs(), 1u);
  EXPECT_THAT(what([&] { s.device->use_choices("{"); }, Exit::usage), HasSubstr("choices"));
}

TEST(CudaDevice, ReplayIsTurnedOff) {
  Simulated s;
  Products products(s);
  s.device->replay(false);
  s.device->take_notes(true);
  s.device->take_notes(false);  // does not turn it on again
  const std::uint64_t key[] = {1};
  for (int i = 0; i < 4; ++i) s.device->compute().repeat(key, [&] { products.multiply(); });
  EXPECT_EQ(static_cast<CudaStream&>(s.device->compute()).graphs(), 0u);
}

TEST(CudaDevice, ALoneRanksCommunicatorWorksOnTheGpu) {
  Simulated s;
  auto world = s.device->communicator(std::make_unique<comm::SoloCommunicator>());
  EXPECT_EQ(world->size(), 1);
  const auto memory = world->symmetric_memory(4096);
  struct Sum : comm::OrderedReducer {
    explicit Sum(CudaDevice& on)
        : device(on), sum(reinterpret_cast<float*>(on.allocate(4096, "sum").data())) {}
    void reduce(tensor::Stream& stream, int, std::int64_t first, std::int64_t count,
                std::span<const void* const> sources) override {
      plain_sum(device.reduce_kernels(), stream, sum + first, sources, tensor::DType::fp32, count, true);
    }
    CudaDevice& device;
    float* sum;
  } reducer(*s.device);
  std::vector<float> gradient(1000, 2.5f);
  s.device->compute().upload(memory.data(), gradient.data(), 4000);
  const comm::Extent extent{memory.data(), 1000, 1000, tensor::DType::fp32};
  s.device->compute().wait(
      world->ordered_reduce_scatter({&extent, 1}, reducer, s.device->compute().record()));
  std::vector<float> sum(1000);
  s.device->compute().download(sum.data(), reducer.sum, 4000);
  EXPECT_EQ(sum, gradient);
}

/// One of two ranks, of which the other has the GPU `other`.
class OneOfTwo final : public comm::Communicator {
 public:
  explicit OneOfTwo(std::string other) : other_(std::move(other)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(std::span<std::uint64_t> words, comm::Scalar) override {
    words[1] = hash_name(other_.data(), other_.size());
  }
  std::span<std::byte> symmetric_memory(std::int64_t) override { return {}; }
  comm::Event all_gather(std::span<const comm::Extent>, const comm::Event&) override { return {}; }
  comm::Event ordered_reduce_scatter(std::span<const comm::Extent>, comm::OrderedReducer&,
                                     const comm::Event&) override {
    return {};
  }
  comm::Event exchange_partial_sums(std::span<const comm::Extent>, std::int64_t, std::span<const int>,
                                    comm::OrderedReducer&, const comm::Event&) override {
    return {};
  }
  void broadcast(std::span<std::byte>, int) override { throw std::runtime_error("the check has passed"); }
  void barrier() override { throw std::runtime_error("the check has passed"); }
  std::unique_ptr<comm::Communicator> split(int, int, std::string) override { return nullptr; }
  const comm::Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}

 private:
  std::string other_;
  comm::Wire wire_;
};

TEST(CudaDevice, TwoRanksOnOneGpuAreRefusedUnlessTheyMay) {
  Simulated s;
  const std::string mine = s.runtime->facts().uuid;
  EXPECT_THAT(what([&] { s.device->communicator(std::make_unique<OneOfTwo>(mine)); }, Exit::usage),
              AllOf(HasSubstr("ranks 0 and 1 have the same GPU"), HasSubstr(mine),
                    HasSubstr("HOLDFAST_SHARE_GPU=1")));
}

TEST(CudaDevice, AGpuThatFailsIsAnErrorForWhoeverWaits) {
  Simulated s;
  s.runtime->fail("GPU 0 (simulated) has failed: cudaErrorECCUncorrectable");
  EXPECT_THAT(what([&] { s.device->compute().record().wait(); }), HasSubstr("cudaErrorECCUncorrectable"));
  EXPECT_THAT(what([&] {
                float x = 0;
                s.device->side().download(&x, s.device->allocate(4, "x").data(), 4);
              }),
              HasSubstr("cudaErrorECCUncorrectable"));
}

}  // namespace
}  // namespace holdfast::cuda

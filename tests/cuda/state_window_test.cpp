// The host's window on a state in the memory of a (simulated) GPU: any size, in parts that are never larger
// than half of it.
#include "src/train/state/state_window.hpp"
#include "src/base/as_size.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "checkpoint/index/state_folder.hpp"
#include "src/base/error.hpp"
#include "src/cuda/device/cuda_device.hpp"
#include "tests/cuda/sim/reference_attention.hpp"
#include "tests/cuda/sim/reference_gemm.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t window_bytes = 512;

class StateWindows : public ::testing::Test {
 protected:
  static std::unique_ptr<cuda::CudaDevice> simulated() {
    using namespace cuda;
    auto runtime = std::make_unique<sim::SimRuntime>();
    sim::SimRuntime& gpu = *runtime;
    return std::make_unique<CudaDevice>(
        CudaParts{std::move(runtime), std::make_unique<sim::ReferenceGemm>(gpu, false, 0),
                  std::make_unique<sim::ReferenceAttention>(gpu), nullptr},
        device::DeviceOptions{.limit = std::chrono::seconds(20)});
  }
  /// Bytes in device memory that the compute stream has yet to write.
  std::byte* on_device(const void* data, std::size_t bytes) {
    std::byte* const memory = device_->allocate(static_cast<std::int64_t>(bytes), "a test").data();
    device_->compute().upload(memory, data, static_cast<std::int64_t>(bytes));
    return memory;
  }
  template <class T>
  std::vector<T> downloaded(const void* from, std::size_t count) {
    std::vector<T> out(count);
    device_->compute().download(out.data(), from, static_cast<std::int64_t>(count * sizeof(T)));
    return out;
  }

  const std::unique_ptr<cuda::CudaDevice> device_ = simulated();
  StateWindow window_{*device_, window_bytes};
};

TEST_F(StateWindows, PartsCoverAllOfItInOrderAndFitHalfTheWindow) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{256}, std::size_t{257}, std::size_t{5000}}) {
    const std::vector<std::uint8_t> bytes(size);
    std::byte* const memory = on_device(bytes.data(), size);
    std::size_t next = 0;
    window_.write(memory, static_cast<std::int64_t>(size), [&](std::span<std::byte> part, std::int64_t at) {
      EXPECT_LE(part.size(), as_size(window_bytes / 2));
      ASSERT_EQ(as_size(at), next);
      next += part.size();
      for (std::size_t i = 0; i < part.size(); ++i)
        part[i] = std::byte(static_cast<unsigned char>(7 * (as_size(at) + i)));
    });
    const auto after = downloaded<std::uint8_t>(memory, size);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(after[i], static_cast<std::uint8_t>(7 * i)) << i;
  }
}

TEST_F(StateWindows, DigestsOfMorePiecesThanAreTakenAtOnce) {
  std::vector<float> values(1300);
  std::iota(values.begin(), values.end(), 0.25f);
  auto* const memory = on_device(values.data(), values.size() * sizeof(float));
  checkpoint::State there{{{"a", 1, 1300, DType::fp32}}, {}}, here = there;
  for (std::int64_t i = 0; i < 1300; ++i) {
    there.pieces.push_back({0, i, 1, memory + as_size(i) * sizeof(float)});
    here.pieces.push_back({0, i, 1, values.data() + i});
  }
  std::vector<std::uint64_t> of_piece(there.pieces.size());
  window_.digests(there, of_piece);
  EXPECT_EQ(of_piece, checkpoint::piece_digests(here));
}

/// Two tensors of different types, one in two pieces.
TEST_F(StateWindows, DigestsAreThoseOfTheHostAndFillReachesEveryElement) {
  std::vector<float> wide(1000);
  std::iota(wide.begin(), wide.end(), 0.5f);
  std::vector<std::uint16_t> narrow(777);
  std::iota(narrow.begin(), narrow.end(), std::uint16_t{11});
  const auto state_at = [](void* a, void* b) {
    return checkpoint::State{{{"a", 10, 200, DType::fp32}, {"b", 1, 777, DType::bf16}},
                             {{0, 300, 700, a},
                              {1, 0, 777, b},
                              {0, 1500, 300, static_cast<std::byte*>(a) + 700 * sizeof(float)},
                              {1, 777, 0, nullptr}}};
  };
  auto* const a = on_device(wide.data(), wide.size() * sizeof(float));
  auto* const b = on_device(narrow.data(), narrow.size() * sizeof(std::uint16_t));
  const checkpoint::State there = state_at(a, b), here = state_at(wide.data(), narrow.data());
  EXPECT_EQ(window_.partial_digests(there), checkpoint::partial_digests(here));

  std::vector<int> filled(2000, 0);
  checkpoint::State first_alone = there;
  std::erase_if(first_alone.pieces, [](const auto& piece) { return piece.tensor != 0; });
  window_.fill(first_alone, [&](const checkpoint::State& part) {
    for (const checkpoint::PieceView& piece : part.pieces)
      for (std::int64_t i = 0; i < piece.count; ++i) {
        ++filled[piece.first + i];
        static_cast<float*>(piece.data)[i] = static_cast<float>(piece.first + i);
      }
  });
  const auto after = downloaded<float>(a, wide.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::size_t element = i < 700 ? 300 + i : 1500 + i - 700;
    EXPECT_EQ(after[i], static_cast<float>(element));
    EXPECT_EQ(filled[element], 1);
  }
}

}  // namespace
}  // namespace holdfast::train

#include "src/cuda/kernels/block_code.hpp"

#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "src/tensor/stream.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;

template <class T>
void expect_host_bits(BlockCode code, std::size_t first) {
  const std::int64_t count = 64 * 37;
  const auto x = test::random_elements<float>(count, 5, 0.02);
  std::vector<std::uint8_t> codes(code_bytes(code, count));
  std::vector<float> scales(count / code_block);
  encode_blocks(code, x, codes, scales);
  const DeviceArray<std::uint8_t> device_codes(codes);
  const DeviceArray<float> device_scales(scales);
  const DeviceArray<T> out(as_size(count) + first);
  decode_blocks(test::gpu(), test::stream(), out.data() + first, dtype_of<T>(), code,
                reinterpret_cast<const std::byte*>(device_codes.data()), device_scales.data(), count);
  test::finish();
  std::vector<T> want(count);
  tensor::InlineStream stream;
  kernels::make_cpu_kernels(1)->decode_blocks(stream, want.data(), dtype_of<T>(), code,
                                              reinterpret_cast<const std::byte*>(codes.data()), scales.data(),
                                              count);
  const auto all = out.download();
  EXPECT_EQ(
      test::difference(std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(first), all.end()), want),
      "");
}

TEST(DecodeBlocks, HasTheBitsOfTheHost) {
  for (const BlockCode code : {BlockCode::int8, BlockCode::nf4})
    for (const std::size_t first : {0u, 1u}) {
      expect_host_bits<float>(code, first);
      expect_host_bits<Bf16>(code, first);
    }
}

}  // namespace
}  // namespace holdfast::cuda

#include "src/cuda/kernels/dropout.hpp"

#include <gtest/gtest.h>

#include "src/tensor/stream.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::Dropout;
using kernels::Write;
using test::DeviceArray;
using test::rows_of;

/// What the call leaves, on the GPU and on the host, in rows that are `stride` elements apart.
template <class To, class From>
std::string compare(std::int64_t rows, std::int64_t cols, std::int64_t stride, std::int64_t first,
                    Dropout call) {
  const auto elements = rows * stride + first;
  const auto in = test::random_elements<From>(elements, 3);
  auto out = test::random_elements<To>(elements, 4);
  const std::vector<std::int64_t> sample = {(std::int64_t{1} << 33) + 5};
  const DeviceArray<From> device_in(in);
  DeviceArray<To> device_out(out);
  const DeviceArray<std::int64_t> device_sample(sample);
  call.in = rows_of(device_in.data() + first, rows, cols, stride);
  call.out = rows_of(device_out.data() + first, rows, cols, stride);
  call.first_sample = device_sample.data();
  dropout(test::gpu(), test::stream(), call);
  test::finish();

  const auto host = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  call.in = rows_of(in.data() + first, rows, cols, stride);
  call.out = rows_of(out.data() + first, rows, cols, stride);
  call.first_sample = sample.data();
  host->dropout(stream, call);
  return test::difference(device_out.download(), out);
}

TEST(Dropout, HasTheBitsOfTheHost) {
  struct Shape {
    std::int64_t rows, cols, stride, first;
  };
  for (const auto& [rows, cols, stride, first] : {Shape{7, 64, 64, 0}, Shape{5, 1030, 1040, 0},
                                                  Shape{3, 13, 17, 1}, Shape{1, 1, 1, 0}, Shape{9, 4, 8, 4}})
    for (const std::uint32_t threshold : {0u, 1u << 30, 0xf0000000u}) {
      Dropout call;
      call.factor = 1.4f, call.threshold = threshold, call.key = 0x123456789abcdefu, call.sequence = 4,
      call.first_token = 6;
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + " below " +
                   std::to_string(threshold));
      EXPECT_EQ((compare<float, float>(rows, cols, stride, first, call)), "");
      EXPECT_EQ((compare<Bf16, Bf16>(rows, cols, stride, first, call)), "");
      EXPECT_EQ((compare<Bf16, float>(rows, cols, stride, first, call)), "");
      call.write = Write::add;
      EXPECT_EQ((compare<float, float>(rows, cols, stride, first, call)), "");
      EXPECT_EQ((compare<float, Bf16>(rows, cols, stride, first, call)), "");
    }
}

TEST(Dropout, LeavesOutAsManyAsItShouldAndOthersForEachTokenSampleAndKey) {
  const std::int64_t rows = 64, cols = 1000;
  const std::vector<float> ones(rows * cols, 1);
  const auto host = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  const auto kept = [&](std::int64_t sample, std::uint64_t key, std::int64_t first_token) {
    std::vector<float> out(ones.size());
    Dropout call;
    call.in = rows_of(ones.data(), rows, cols, cols);
    call.out = rows_of(out.data(), rows, cols, cols);
    call.threshold = 1u << 30;
    call.key = key;
    call.first_sample = &sample;
    call.sequence = 64;
    call.first_token = first_token;
    host->dropout(stream, call);
    return out;
  };
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    double n = 0;
    for (std::size_t i = 0; i < a.size(); ++i) n += a[i] == b[i];
    return n / static_cast<double>(a.size());
  };
  const auto base = kept(0, 1, 0);
  EXPECT_NEAR(same(base, ones), 0.75, 0.006);
  EXPECT_EQ(base, kept(0, 1, 0));
  // Independent masks agree in 0.75^2 + 0.25^2 of their elements.
  for (const auto& other : {kept(1, 1, 0), kept(0, 2, 0), kept(0, 1, 1)})
    EXPECT_NEAR(same(base, other), 0.625, 0.007);
  EXPECT_EQ(kept(5, 1, 64), kept(6, 1, 0)) << "row 1 of sample 5 is sample 6";
}

}  // namespace
}  // namespace holdfast::cuda

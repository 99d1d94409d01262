// The simulator as a module: what holdfast-train loads in tests from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "src/device/load.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::device {
namespace {

TEST(SimModule, IsADevice) {
  const auto device = open_module({{.file = HOLDFAST_SIM_MODULE}}, {});
  EXPECT_THAT(device->describe(), testing::HasSubstr("Simulated GPU"));
  EXPECT_FALSE(device->is_host());

  const std::vector<float> x{1, -2, 3.14159f, 1e-3f};
  const auto bytes = static_cast<std::int64_t>(x.size() * sizeof(float));
  const auto memory = device->allocate(8192, "a test");
  auto *wide = memory.data(), *narrow = memory.data() + 4096;
  auto& compute = device->compute();
  for (int i = 0; i < 3; ++i) {
    compute.upload(wide, x.data(), bytes);
    compute.repeat({{1}}, [&] {
      device->kernels().convert(compute, narrow, DType::bf16, wide, DType::fp32,
                                static_cast<std::int64_t>(x.size()));
    });
    std::vector<Bf16> got(x.size());
    compute.download(got.data(), narrow, bytes / 2);
    for (std::size_t k = 0; k < x.size(); ++k) EXPECT_EQ(got[k], to_bf16(x[k]));
  }
  std::uint32_t last = 1;
  compute.download(&last, narrow + 64, 4);
  EXPECT_EQ(last, 0u);  // memory comes zeroed
}

}  // namespace
}  // namespace holdfast::device

#include "launcher/foresee/rates.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

const GpuKind& h100() { return *gpu_kind_called("h100"); }
double tflops(double m, double n, double k, double s) { return 2 * m * n * k / s / 1e12; }

TEST(Rates, of_products_are_those_of_the_benchmarks) {
  const auto square = [](double n) {
    return tflops(n, n, n, product_s(h100(), fast_rates(), false, n, n, n));
  };
  EXPECT_NEAR(square(8192), 797, 0.05 * 797);
  EXPECT_NEAR(square(2048), 676, 0.07 * 676);
  EXPECT_NEAR(square(1024), 177, 0.10 * 177) << "32 tiles for 132 multiprocessors";
}

TEST(Rates, of_products_in_8_bits_are_higher_where_the_gpu_has_them) {
  const Rates rates = typical_rates();
  const double n = 8192;
  EXPECT_NEAR(product_s(h100(), rates, false, n, n, n) / product_s(h100(), rates, true, n, n, n), 1.81, 0.02);
  const GpuKind& a100 = *gpu_kind_called("a100");
  EXPECT_EQ(product_s(a100, rates, false, n, n, n), product_s(a100, rates, true, n, n, n));
}

TEST(Rates, of_thin_products_are_those_of_memory) {
  const Rates rates = typical_rates();
  const double m = 65536, k = 8192, bytes = 2 * (m * k + k * 8 + m * 8);
  EXPECT_NEAR(product_s(h100(), rates, false, m, 8, k), stream_s(h100(), rates, bytes), 5e-6);
  EXPECT_EQ(product_s(h100(), rates, false, m, 0, k), 0) << "there is none";
}

TEST(Rates, of_attention_are_read_off_the_figures) {
  EXPECT_DOUBLE_EQ(attention_share(Attention::cudnn, false, 4096, 128), 518 / 989.4);
  EXPECT_DOUBLE_EQ(attention_share(Attention::cudnn, true, 4096, 128), 465 / 989.4) << "half as long";
  EXPECT_DOUBLE_EQ(attention_share(Attention::flash2, false, 65536, 128), 335 / 989.4) << "the last one";
  EXPECT_DOUBLE_EQ(attention_share(Attention::flash2, false, 1, 128), 191 / 989.4) << "the first one";
  EXPECT_DOUBLE_EQ(attention_share(Attention::ours, false, 4096, 128), 455 / 989.4);
  EXPECT_DOUBLE_EQ(attention_share(Attention::ours, true, 4096, 128), 420 / 989.4);
  EXPECT_DOUBLE_EQ(attention_share(Attention::ours_deterministic, true, 4096, 128), 225 / 989.4);
  EXPECT_LT(attention_share(Attention::ours, false, 4096, 64),
            attention_share(Attention::ours, false, 4096, 128));
}

/// What nccl-tests call bus bandwidth, GB/s.
double bus(const GpuKind& gpu, double adapter, Members members, double bytes) {
  const double part = (members.all - 1.0) / members.all;
  return bytes * part / collective_s(gpu, typical_rates(), adapter, members, bytes) / 1e9;
}

TEST(Rates, of_collectives_are_those_of_nccl) {
  EXPECT_NEAR(bus(h100(), 0, {8, 8}, 8e9), 370, 5) << "NVLink";
  EXPECT_NEAR(bus(h100(), 50e9, {32, 8}, 4e9), 355, 10) << "4 nodes; reported: 360";
  EXPECT_NEAR(bus(h100(), 50e9, {1024, 8}, 4e9), 260, 15) << "128 nodes; reported: 260";
  EXPECT_NEAR(bus(h100(), 50e9, {16, 1}, 4e9), 45, 1) << "peers of one rail";
  EXPECT_NEAR(bus(*gpu_kind_called("l40s"), 0, {8, 8}, 4e9), 26, 1) << "PCIe";
}

TEST(Rates, of_collectives_fall_with_small_messages_and_there_is_none_alone) {
  EXPECT_LT(bus(h100(), 50e9, {1024, 8}, 4e6), 1);
  EXPECT_EQ(collective_s(h100(), typical_rates(), 50e9, {1, 1}, 4e9), 0);
  EXPECT_EQ(collective_s(h100(), typical_rates(), 50e9, {8, 8}, 0), 0);
}

}  // namespace
}  // namespace holdfast::launcher

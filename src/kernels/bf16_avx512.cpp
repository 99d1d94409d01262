// Bf16Blocks with AVX512-BF16.
#include "src/kernels/bf16_avx512.hpp"

#include <algorithm>

#include "src/kernels/bf16_paths.hpp"

namespace holdfast::kernels {

#if defined(__x86_64__)
namespace {

constexpr int left_rows = 12;  // times two vectors of columns: 24 accumulators, more than vdpbf16ps's latency
constexpr int width = Bf16Blocks::right_width;

/// rows x 32 results. Left words [pair][12], right words [pair][32].
template <int rows>
HOLDFAST_AVX512 void panel_product_of(float* c, std::int64_t stride, const std::uint32_t* left,
                                      const std::uint32_t* right, std::int64_t cols, std::int64_t pairs,
                                      bool accumulate) {
  const __mmask16 low = avx512::first_lanes16(cols), high = avx512::first_lanes16(cols - 16);
  __m512 sum[rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    if (accumulate) {
      sum[r][0] = _mm512_maskz_loadu_ps(low, c + r * stride);
      sum[r][1] = _mm512_maskz_loadu_ps(high, c + r * stride + 16);
    }
  }
  for (std::int64_t p = 0; p < pairs; ++p) {
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * width)),
               b1 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * width + 16));
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(left[p * left_rows + r])));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    _mm512_mask_storeu_ps(c + r * stride, low, sum[r][0]);
    _mm512_mask_storeu_ps(c + r * stride + 16, high, sum[r][1]);
  }
}

using PanelProduct = void (*)(float*, std::int64_t, const std::uint32_t*, const std::uint32_t*, std::int64_t,
                              std::int64_t, bool);
constexpr PanelProduct panel_products[left_rows] = {
    panel_product_of<1>, panel_product_of<2>,  panel_product_of<3>,  panel_product_of<4>,
    panel_product_of<5>, panel_product_of<6>,  panel_product_of<7>,  panel_product_of<8>,
    panel_product_of<9>, panel_product_of<10>, panel_product_of<11>, panel_product_of<12>};

class Avx512Blocks final : public Bf16Blocks {
 public:
  Avx512Blocks() : Bf16Blocks(left_rows, 2) {}
  Bf16Path path() const override { return Bf16Path::avx512; }
  std::string name() const override { return "avx512-bf16"; }
  void finish(Bf16* y, std::int64_t y_stride, const float* sums, std::int64_t stride, const Bf16* bias,
              std::int64_t rows, std::int64_t cols) const override {
    avx512::finish(y, y_stride, sums, stride, bias, rows, cols);
  }
  void finish(float* y, std::int64_t y_stride, const float* sums, std::int64_t stride, const Bf16* bias,
              bool add, std::int64_t rows, std::int64_t cols) const override {
    avx512::finish(y, y_stride, sums, stride, bias, add, rows, cols);
  }

 private:
  HOLDFAST_AVX512 void pack_left_panels(std::byte* packed, const Bf16* source, std::int64_t stride,
                                        bool along_k, std::int64_t rows, std::int64_t k) const override {
    // Across k, a row of the source is a piece of many panels: all of them take theirs while it is in the
    // cache.
    const std::int64_t depth = depth_of(k), part = along_k ? depth : 8;
    auto* panels = reinterpret_cast<std::uint32_t*>(packed);
    for (std::int64_t i = 0; i < depth; i += part)
      for (std::int64_t r = 0; r < rows; r += left_rows)
        avx512::pack_pairs<left_rows>(panels + r * depth / 2, source + r * (along_k ? stride : 1), stride,
                                      along_k, std::min<std::int64_t>(left_rows, rows - r), k, i, i + part);
  }
  HOLDFAST_AVX512 void pack_right_panel(std::byte* packed, const Bf16* source, std::int64_t stride,
                                        bool along_k, std::int64_t count, std::int64_t k) const override {
    avx512::pack_pairs<width>(reinterpret_cast<std::uint32_t*>(packed), source, stride, along_k, count, k, 0,
                              depth_of(k));
  }
  void panel_product(float* c, std::int64_t stride, const std::byte* left, const std::byte* right,
                     std::int64_t rows, std::int64_t cols, std::int64_t k, bool accumulate) const override {
    panel_products[rows - 1](c, stride, reinterpret_cast<const std::uint32_t*>(left),
                             reinterpret_cast<const std::uint32_t*>(right), cols, (k + 1) / 2, accumulate);
  }
};

}  // namespace

const Bf16Blocks* avx512_blocks() {
  static const bool usable = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  static const Avx512Blocks blocks;
  return usable ? &blocks : nullptr;
}

#else

const Bf16Blocks* avx512_blocks() { return nullptr; }

#endif

}  // namespace holdfast::kernels

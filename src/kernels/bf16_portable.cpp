// Bf16Blocks for any processor: panels hold fp32, and the compiler's vectors multiply them. Each element is
// its own sum, k by k, so that its bits are the same for every vector width. This file is compiled with
// contraction to fma: the product of two bf16 numbers is exact in fp32, so fused and separate rounding differ
// only where a product over- or underflows.
#include <algorithm>
#include <cstring>

#include "src/kernels/bf16_paths.hpp"

namespace holdfast::kernels {

namespace {

constexpr int left_rows = 12;
constexpr int width = Bf16Blocks::right_width;

/// out[rows][32] from [k][12] and [k][32]: rows first_row.. of a panel. Per pass rows x (vectors * lanes)
/// sums live in registers.
template <int lanes, int vectors, int rows>
inline __attribute__((always_inline)) void sums(float* out, const float* left, const float* right,
                                                std::int64_t k) {
  typedef float Vector __attribute__((vector_size(lanes * 4)));
  for (int col = 0; col < width; col += lanes * vectors) {
    Vector sum[rows][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        std::memcpy(&sum[r][v], out + r * width + col + v * lanes, sizeof(Vector));
    for (std::int64_t i = 0; i < k; ++i) {
      Vector b[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        std::memcpy(&b[v], right + i * width + col + v * lanes, sizeof(Vector));
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] += left[i * left_rows + r] * b[v];
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        std::memcpy(out + r * width + col + v * lanes, &sum[r][v], sizeof(Vector));
  }
}

/// The rows of a left panel, `rows` at a time.
template <int lanes, int vectors, int rows>
inline __attribute__((always_inline)) void panel_sums(float* out, const float* left, const float* right,
                                                      std::int64_t count, std::int64_t k) {
  for (int r = 0; r < left_rows && r < count; r += rows)
    sums<lanes, vectors, rows>(out + r * width, left + r, right, k);
}

using PanelSums = void (*)(float*, const float*, const float*, std::int64_t, std::int64_t);
void sums_of_4(float* out, const float* left, const float* right, std::int64_t count, std::int64_t k) {
  panel_sums<4, 2, 4>(out, left, right, count, k);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void sums_of_8(float* out, const float* left, const float* right,
                                                   std::int64_t count, std::int64_t k) {
  panel_sums<8, 2, 6>(out, left, right, count, k);
}
__attribute__((target("avx512f"))) void sums_of_16(float* out, const float* left, const float* right,
                                                   std::int64_t count, std::int64_t k) {
  panel_sums<16, 2, 12>(out, left, right, count, k);
}
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
PanelSums widest() {
  return __builtin_cpu_supports("avx512f") ? sums_of_16 : has_fma() ? sums_of_8 : sums_of_4;
}
#else
PanelSums widest() { return sums_of_4; }
bool has_fma() { return false; }
#endif

void pack(float* packed, int panel_width, const Bf16* source, std::int64_t stride, bool along_k,
          std::int64_t count, std::int64_t k, std::int64_t depth) {
  if (along_k) {
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t r = 0; r < panel_width; ++r)
        packed[i * panel_width + r] = r < count ? to_float(source[r * stride + i]) : 0.0f;
  } else {
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t r = 0; r < panel_width; ++r)
        packed[i * panel_width + r] = r < count ? to_float(source[i * stride + r]) : 0.0f;
  }
  std::fill(packed + k * panel_width, packed + depth * panel_width, 0.0f);
}

class PortableBlocks final : public Bf16Blocks {
 public:
  PortableBlocks() : Bf16Blocks(left_rows, 4), sums_(widest()) {}
  Bf16Path path() const override { return Bf16Path::portable; }
  std::string name() const override { return has_fma() ? "portable fp32 fma" : "portable fp32"; }

 private:
  void pack_left_panels(std::byte* packed, const Bf16* source, std::int64_t stride, bool along_k,
                        std::int64_t rows, std::int64_t k) const override {
    auto* panels = reinterpret_cast<float*>(packed);
    for (std::int64_t r = 0; r < rows; r += left_rows)
      pack(panels + r * depth_of(k), left_rows, source + r * (along_k ? stride : 1), stride, along_k,
           std::min<std::int64_t>(left_rows, rows - r), k, depth_of(k));
  }
  void pack_right_panel(std::byte* packed, const Bf16* source, std::int64_t stride, bool along_k,
                        std::int64_t count, std::int64_t k) const override {
    pack(reinterpret_cast<float*>(packed), width, source, stride, along_k, count, k, depth_of(k));
  }
  void panel_product(float* c, std::int64_t stride, const std::byte* left, const std::byte* right,
                     std::int64_t rows, std::int64_t cols, std::int64_t k, bool accumulate) const override {
    alignas(64) float tile[left_rows * width] = {};
    if (accumulate)
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(c + r * stride, cols, tile + r * width);
    sums_(tile, reinterpret_cast<const float*>(left), reinterpret_cast<const float*>(right), rows, k);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(tile + r * width, cols, c + r * stride);
  }

  PanelSums sums_;
};

}  // namespace

const Bf16Blocks& portable_blocks() {
  static const PortableBlocks blocks;
  return blocks;
}

}  // namespace holdfast::kernels

#pragma once
// Bf16Blocks with AMX-BF16, over a type that gives the tile instructions: the processor's (bf16_amx.cpp), or
// their meaning in plain C++, with which the logic here is tested anywhere with AVX-512.
//
// Tiles requires, for tile numbers known at compile time and `stride` in bytes between rows:
//   configure(): tiles 0 to 7 have 16 rows of 64 bytes; release()
//   zero<t>(), load<t>(from, stride), store<t>(to, stride)
//   multiply<c, a, b>(): c (16 x 16 fp32) += a (16 rows of 16 pairs) * b (16 pairs of 16 columns)
#if defined(__x86_64__)
#include "src/kernels/bf16_avx512.hpp"
#include "src/kernels/bf16_block.hpp"

namespace holdfast::kernels {

template <class Tiles>
class AmxBlocks final : public Bf16Blocks {
 public:
  AmxBlocks() : Bf16Blocks(left_rows, 2) {}
  Bf16Path path() const override { return Bf16Path::amx; }
  std::string name() const override { return "amx-bf16"; }
  void finish(Bf16* y, std::int64_t y_stride, const float* sums, std::int64_t stride, const Bf16* bias,
              std::int64_t rows, std::int64_t cols) const override {
    avx512::finish(y, y_stride, sums, stride, bias, rows, cols);
  }
  void finish(float* y, std::int64_t y_stride, const float* sums, std::int64_t stride, const Bf16* bias,
              bool add, std::int64_t rows, std::int64_t cols) const override {
    avx512::finish(y, y_stride, sums, stride, bias, add, rows, cols);
  }

 private:
  static constexpr int left_rows = 32;  // 2 x 2 tiles of results: each operand tile is used twice
  static constexpr int width = Bf16Blocks::right_width;
  static constexpr int step = Bf16Blocks::k_step;  // k of one tile
  static constexpr int tile_rows = 16;

  /// Left panels: [k / 32][32 rows][32 k], so that 16 rows are a tile without gaps.
  HOLDFAST_AVX512 void pack_left_panels(std::byte* packed, const Bf16* source, std::int64_t stride,
                                        bool along_k, std::int64_t rows, std::int64_t k) const override {
    const avx512::PairOrder order = avx512::pair_order();
    auto* to = reinterpret_cast<std::uint32_t*>(packed);
    for (std::int64_t first = 0; first < rows; first += left_rows)
      for (std::int64_t i = 0; i < k; i += step, to += left_rows * step / 2) {
        __m512i upper[16], lower[16];  // 16 rows each, a vector per row
        if (along_k) {
          const Bf16* at = source + first * stride + i;
          avx512::load_rows(upper, at, stride, rows - first, k - i);
          avx512::load_rows(lower, at + 16 * stride, stride, rows - first - 16, k - i);
        } else {
          for (int p = 0; p < 16; ++p)
            avx512::interleave<true>(upper[p], lower[p], source + first, stride, i + 2 * p, k,
                                     avx512::first_lanes32(rows - first), order);
          avx512::transpose(upper);
          avx512::transpose(lower);
        }
        for (int r = 0; r < 16; ++r) {
          _mm512_store_si512(to + r * 16, upper[r]);
          _mm512_store_si512(to + (16 + r) * 16, lower[r]);
        }
      }
  }
  /// Right panels: [k / 2][32 columns] pairs; a tile is 16 columns of it.
  HOLDFAST_AVX512 void pack_right_panel(std::byte* packed, const Bf16* source, std::int64_t stride,
                                        bool along_k, std::int64_t count, std::int64_t k) const override {
    avx512::pack_pairs<width>(reinterpret_cast<std::uint32_t*>(packed), source, stride, along_k, count, k, 0,
                              depth_of(k));
  }

  void begin() const override { Tiles::configure(); }
  void end() const override { Tiles::release(); }

  HOLDFAST_AVX512 void panel_product(float* c, std::int64_t stride, const std::byte* left,
                                     const std::byte* right, std::int64_t rows, std::int64_t cols,
                                     std::int64_t k, bool accumulate) const override {
    if (rows == left_rows && cols == width)
      return tiles_product<true, true>(c, stride, left, right, k, accumulate);
    // Tiles are stored whole, so a part of a panel takes the way through a block of its own.
    alignas(64) float block[left_rows * width];
    const __mmask16 low = avx512::first_lanes16(cols), high = avx512::first_lanes16(cols - 16);
    if (accumulate)
      for (std::int64_t r = 0; r < left_rows; ++r) {
        const bool exists = r < rows;
        _mm512_store_ps(block + r * width,
                        exists ? _mm512_maskz_loadu_ps(low, c + r * stride) : _mm512_setzero_ps());
        _mm512_store_ps(block + r * width + 16,
                        exists ? _mm512_maskz_loadu_ps(high, c + r * stride + 16) : _mm512_setzero_ps());
      }
    const bool lower = rows > tile_rows, right_half = cols > 16;
    (lower        ? right_half ? tiles_product<true, true> : tiles_product<true, false>
            : right_half ? tiles_product<false, true>
                  : tiles_product<false, false>)(block, width, left, right, k, accumulate);
    for (std::int64_t r = 0; r < rows; ++r) {
      _mm512_mask_storeu_ps(c + r * stride, low, _mm512_load_ps(block + r * width));
      if (right_half)
        _mm512_mask_storeu_ps(c + r * stride + 16, high, _mm512_load_ps(block + r * width + 16));
    }
  }

  /// Result tiles 0 (upper left), 1 (upper right), 2, 3; left operands in 4 and 5, right ones in 6 and 7.
  template <bool lower, bool right_half>
  static void tiles_product(float* c, std::int64_t stride, const std::byte* left, const std::byte* right,
                            std::int64_t k, bool accumulate) {
    constexpr std::int64_t left_bytes = 64, right_bytes = width * 4;  // between rows of a tile
    const std::int64_t bytes = stride * 4;
    if (accumulate) {
      Tiles::template load<0>(c, bytes);
      if constexpr (right_half) Tiles::template load<1>(c + 16, bytes);
      if constexpr (lower) Tiles::template load<2>(c + tile_rows * stride, bytes);
      if constexpr (lower && right_half) Tiles::template load<3>(c + tile_rows * stride + 16, bytes);
    } else {
      Tiles::template zero<0>();
      if constexpr (right_half) Tiles::template zero<1>();
      if constexpr (lower) Tiles::template zero<2>();
      if constexpr (lower && right_half) Tiles::template zero<3>();
    }
    for (std::int64_t i = 0; i < k; i += step) {
      Tiles::template load<4>(left, left_bytes);
      Tiles::template load<6>(right, right_bytes);
      Tiles::template multiply<0, 4, 6>();
      if constexpr (right_half) {
        Tiles::template load<7>(right + 64, right_bytes);
        Tiles::template multiply<1, 4, 7>();
      }
      if constexpr (lower) {
        Tiles::template load<5>(left + tile_rows * left_bytes, left_bytes);
        Tiles::template multiply<2, 5, 6>();
        if constexpr (right_half) Tiles::template multiply<3, 5, 7>();
      }
      left += left_rows * left_bytes;
      right += step / 2 * right_bytes;
    }
    Tiles::template store<0>(c, bytes);
    if constexpr (right_half) Tiles::template store<1>(c + 16, bytes);
    if constexpr (lower) Tiles::template store<2>(c + tile_rows * stride, bytes);
    if constexpr (lower && right_half) Tiles::template store<3>(c + tile_rows * stride + 16, bytes);
  }
};

}  // namespace holdfast::kernels
#endif

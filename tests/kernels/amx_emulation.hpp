#pragma once
// The meaning of AMX's tile instructions in plain C++ (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 2: TILELOADD, TILESTORED, TILEZERO, TDPBF16PS), for AmxBlocks where there is no AMX.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "src/base/error.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::testing {

/// A subnormal number becomes a zero of its sign, as with DAZ and FTZ.
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

class EmulatedTiles {
 public:
  /// An unconfigured tile is an invalid instruction for the processor.
  static void configure() {
    expects(!configured_, "tiles are configured once at a time");
    configured_ = true;
    std::memset(tile_, 0xff, sizeof tile_);  // whatever was there: NaNs
  }
  static void release() {
    expects(configured_, "tiles are released after they were configured");
    configured_ = false;
  }
  template <int t>
  static void zero() {
    expects(configured_, "tiles are configured");
    std::memset(tile_[t], 0, sizeof tile_[t]);
  }
  template <int t>
  static void load(const void* from, std::int64_t stride) {
    expects(configured_, "tiles are configured");
    for (int row = 0; row < 16; ++row)
      std::memcpy(tile_[t][row], static_cast<const char*>(from) + row * stride, 64);
  }
  template <int t>
  static void store(void* to, std::int64_t stride) {
    expects(configured_, "tiles are configured");
    for (int row = 0; row < 16; ++row) std::memcpy(static_cast<char*>(to) + row * stride, tile_[t][row], 64);
  }
  /// Whoever has the AVX-512 that packing needs has these instructions; a call of the library for each
  /// product would take most of the time of the tests.
  template <int c, int a, int b>
  [[gnu::target("fma")]] static void multiply() {
    expects(configured_, "tiles are configured");
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          even = flushed(std::fma(element<a>(m, 2 * k), element<b>(k, 2 * n), even));
          odd = flushed(std::fma(element<a>(m, 2 * k + 1), element<b>(k, 2 * n + 1), odd));
        }
        float sum;
        std::memcpy(&sum, &tile_[c][m][4 * n], 4);
        sum = flushed(flushed(sum) + flushed(even + odd));
        std::memcpy(&tile_[c][m][4 * n], &sum, 4);
      }
  }

 private:
  template <int t>
  static float element(int row, int col) {
    tensor::Bf16 x;
    std::memcpy(&x, &tile_[t][row][2 * col], 2);
    return flushed(tensor::to_float(x));
  }

  static inline thread_local bool configured_ = false;
  alignas(64) static inline thread_local unsigned char tile_[8][16][64];
};

}  // namespace holdfast::testing

#include "src/kernels/exact_squares.hpp"

#include <algorithm>
#include <bit>

#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

// The square of a float is exact in a double. A double t < 2^51 * unit is cut into integers by additions:
// t + 1.5 * 2^52 * unit has round(t / unit) in its low bits, so the bit patterns can be summed as integers;
// what was rounded away is exact again and goes to the next, finer unit. The finest is that of ExactSum,
// whose terms are cut off, not rounded: one too much is taken back.
//
// Two units do for |x| < 2^10, a third one for all that ExactSum takes; a block's sums stay below 2^63.
constexpr int finest = -80, middle = -30, high = 20;  // log2 of the units
constexpr float limit_of_two = 0x1p10f, limit_of_three = 0x1p31f;
constexpr std::int64_t block = 4096;  // elements between two looks at their size

constexpr double magic(int unit) {
  return std::bit_cast<double>(std::uint64_t(1023 + 52 + unit) << 52 | std::uint64_t{1} << 51);
}
HOLDFAST_INLINE std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

struct Integers {
  std::int64_t high = 0, middle = 0, finest = 0;  ///< in their units
};

/// Sum over at most `block` elements.
template <bool three>
HOLDFAST_VECTOR_WIDTHS Integers cut(const float* x, std::int64_t count) {
  constexpr double a = magic(high), b = magic(middle), c = magic(finest);
  std::uint64_t sum_a = 0, sum_b = 0, sum_c = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double d = x[i];
    double rest = d * d;
    if constexpr (three) {
      const double q = rest + a;
      sum_a += bits(q);
      rest -= q - a;
    }
    const double q = rest + b;
    sum_b += bits(q);
    rest -= q - b;
    const double r = rest + c;
    sum_c += bits(r) - (r - c > rest ? 1 : 0);
  }
  // Sums of bit patterns wrap round; without the patterns of the constants they are small again.
  const auto n = static_cast<std::uint64_t>(count);
  if constexpr (three) sum_a -= n * bits(a);
  return {static_cast<std::int64_t>(sum_a), static_cast<std::int64_t>(sum_b - n * bits(b)),
          static_cast<std::int64_t>(sum_c - n * bits(c))};
}

/// The largest |x|, as an integer that grows with it; a NaN is the largest of all.
HOLDFAST_VECTOR_WIDTHS std::uint32_t largest_pattern(const float* x, std::int64_t count) {
  std::uint32_t top = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t size = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff;
    top = size > top ? size : top;
  }
  return top;
}

}  // namespace

void add_squares(tensor::ExactSum* sum, const float* x, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += block) {
    const std::int64_t n = std::min(block, count - at);
    const float size = std::bit_cast<float>(largest_pattern(x + at, n));
    if (!(size < limit_of_three)) {
      for (std::int64_t i = 0; i < n; ++i) sum->add_square(x[at + i]);
      continue;
    }
    const Integers part = size < limit_of_two ? cut<false>(x + at, n) : cut<true>(x + at, n);
    sum->add_units(part.high, high - finest);
    sum->add_units(part.middle, middle - finest);
    sum->add_units(part.finest, 0);
  }
}

}  // namespace holdfast::kernels

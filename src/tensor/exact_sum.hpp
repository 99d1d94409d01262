#pragma once
// A sum that does not depend on the order of its terms: a 192-bit integer in units of 2^-80. Sums of squares
// and of losses are computed with it, so that a global norm is the same number however the elements are cut
// over ranks and threads.
//
// Terms are non-negative, each below 2^62; what a term has below 2^-80 is cut off. A NaN and a term (or
// rank's sum) that is too large are counted apart, so they survive an all-reduce instead of spoiling the
// integer.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace holdfast::tensor {

class ExactSum {
 public:
  /// Three limbs of 48 bits, a count of overflows, a count of NaNs. Word-wise uint64 sums of up to 65536
  /// ranks' words are the words of the ranks' sum.
  using Words = std::array<std::uint64_t, 5>;

  ExactSum() = default;
  static ExactSum from_words(const Words& words);

  /// Adds x^2, exactly down to 2^-80.
  void add_square(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const auto exponent = static_cast<int>(bits >> 23 & 0xff);
    std::uint64_t significand = bits & 0x7fffff;
    if (exponent != 0) significand |= 0x800000;
    // x = significand * 2^(max(exponent, 1) - 150); subnormals are cut off anyway.
    const int shift = 2 * exponent - 300 + fraction_bits;
    add_shifted(significand * significand, shift, exponent == 0xff, (bits & 0x7fffffff) > 0x7f800000);
  }
  /// Adds x >= 0 (a negative term counts as NaN: whoever computed it is broken).
  void add(double x) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
    std::uint64_t significand = bits & 0xfffffffffffff;
    if (exponent != 0) significand |= 1ull << 52;
    add_shifted(significand, exponent - 1075 + fraction_bits, exponent == 0x7ff, x < 0 || std::isnan(x));
  }
  /// Adds count * 2^(shift - 80), 0 <= shift < 128: terms that were summed up as integers. The count may be
  /// negative where others make up for it.
  void add_units(std::int64_t count, int shift) {
    add_wide(static_cast<Wide>(count) << shift,
             static_cast<std::uint64_t>(count >> std::min(63, 128 - shift)));
  }
  void add(const ExactSum& other) {
    add_wide(other.low_, other.high_);
    overflows_ += other.overflows_;
    nans_ += other.nans_;
  }

  /// NaN if a term was NaN, infinity if one was too large, else the nearest double (within 2 ulp, always the
  /// same one).
  double value() const;
  Words words() const;
  bool has_nan() const { return nans_ != 0; }
  bool has_overflow() const { return overflows_ != 0; }
  bool operator==(const ExactSum&) const = default;

  static constexpr int fraction_bits = 80;
  static constexpr int limit_bits = 62;  ///< of a term, before the point
  /// Whether the parts lie at these bytes, for code that adds to them word by word (on a GPU).
  static constexpr bool words_are_at(std::size_t low, std::size_t high, std::size_t overflows,
                                     std::size_t nans) {
    return offsetof(ExactSum, low_) == low && offsetof(ExactSum, high_) == high &&
           offsetof(ExactSum, overflows_) == overflows && offsetof(ExactSum, nans_) == nans;
  }

 private:
  using Wide = unsigned __int128;
  static constexpr std::uint64_t limb_mask = (1ull << 48) - 1;

  void add_wide(Wide low, std::uint64_t high) {
    low_ += low;
    high_ += high + (low_ < low ? 1 : 0);
  }
  /// Adds significand * 2^shift units.
  void add_shifted(std::uint64_t significand, int shift, bool infinite, bool nan) {
    if (nan) {
      ++nans_;
    } else if (infinite || (shift > 0 && shift + std::bit_width(significand) > limit_bits + fraction_bits)) {
      ++overflows_;
    } else if (shift <= -64) {
      // below 2^-80
    } else if (shift <= 0) {
      add_wide(significand >> -shift, 0);
    } else if (shift < 64) {
      add_wide(static_cast<Wide>(significand) << shift, 0);
    } else {  // up to 2^142: the product may reach into the high word
      const Wide upper = static_cast<Wide>(significand) << (shift - 64);
      add_wide(upper << 64, static_cast<std::uint64_t>(upper >> 64));
    }
  }

  Wide low_ = 0;
  std::uint64_t high_ = 0;
  std::uint64_t overflows_ = 0, nans_ = 0;
};

inline ExactSum::Words ExactSum::words() const {
  // From 2^64 on, 65536 ranks' top limbs would not fit into a word.
  if (overflows_ != 0 || high_ >> 16 != 0) return {0, 0, 0, std::max<std::uint64_t>(overflows_, 1), nans_};
  return {static_cast<std::uint64_t>(low_) & limb_mask, static_cast<std::uint64_t>(low_ >> 48) & limb_mask,
          static_cast<std::uint64_t>(low_ >> 96) | high_ << 32, 0, nans_};
}

inline ExactSum ExactSum::from_words(const Words& words) {
  ExactSum sum;
  sum.add_wide(words[0], 0);
  sum.add_wide(static_cast<Wide>(words[1]) << 48, 0);
  sum.add_wide(static_cast<Wide>(words[2]) << 96, words[2] >> 32);
  sum.overflows_ = words[3];
  sum.nans_ = words[4];
  return sum;
}

inline double ExactSum::value() const {
  if (has_nan()) return std::numeric_limits<double>::quiet_NaN();
  if (overflows_ != 0) return std::numeric_limits<double>::infinity();
  const auto mid = static_cast<std::uint64_t>(low_ >> 64), low = static_cast<std::uint64_t>(low_);
  return std::ldexp(static_cast<double>(high_), 128 - fraction_bits) +
         std::ldexp(static_cast<double>(mid), 64 - fraction_bits) +
         std::ldexp(static_cast<double>(low), -fraction_bits);
}

}  // namespace holdfast::tensor

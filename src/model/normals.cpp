// log, sin and cos are here because those of a C library differ in their last bit from version to version,
// and because vectors of a library's would differ between instruction sets. Each is within 2 units in the
// last place. Reductions are those of fdlibm (Sun Microsystems, 1993: e_log.c, k_sin.c, k_cos.c); the
// polynomials are interpolations at Chebyshev's points, within 5e-18 of the function.
#include "src/model/normals.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "src/base/error.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::model {
namespace {

constexpr std::size_t lanes = 64;  ///< Philox blocks at once
using Words = std::array<std::array<std::uint32_t, lanes>, 4>;
using Doubles = std::array<double, lanes>;

/// tensor::philox() of counters first, first + 1, ..., round by round.
HOLDFAST_INLINE void draw(std::uint64_t first, std::uint64_t name, std::uint64_t seed, Words& c) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  for (std::size_t l = 0; l < lanes; ++l) {
    c[0][l] = low(first + l);
    c[1][l] = high(first + l);
    c[2][l] = low(name);
    c[3][l] = high(name);
  }
  std::uint32_t key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0][l], p1 = std::uint64_t{0xCD9E8D57} * c[2][l];
      c[0][l] = high(p1) ^ c[1][l] ^ key0;
      c[1][l] = low(p1);
      c[2][l] = high(p0) ^ c[3][l] ^ key1;
      c[3][l] = low(p0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

template <std::size_t n>
HOLDFAST_INLINE double polynomial(double x, const std::array<double, n>& coefficients) {
  double sum = coefficients[n - 1];
  for (std::size_t i = n - 1; i > 0; --i) sum = sum * x + coefficients[i - 1];
  return sum;
}

/// log(x) for a normal x > 0: x = 2^k m with m between sqrt(1/2) and sqrt(2), and log(m) by s = (m - 1) / (m
/// + 1).
HOLDFAST_INLINE double logarithm(double x) {
  constexpr std::uint64_t one = 0x3ff0000000000000, half_root = 0x3fe6a09e00000000,
                          fraction = 0x000fffffffffffff;
  constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
  // (2 atanh(s) / s - 2) / s^2 in s^2
  constexpr std::array p{0x1.5555555555555p-1, 0x1.9999999999a38p-2, 0x1.2492492476cccp-2,
                         0x1.c71c720159177p-3, 0x1.745cf9048dd95p-3, 0x1.3b1c355a8f7a2p-3,
                         0x1.0fbe95d716020p-3, 0x1.0c039c49989c6p-3};
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) + (one - half_root);
  // A small whole number as a double: in the low bits of 2^52.
  const double k = std::bit_cast<double>(bits >> 52 | std::uint64_t{0x433} << 52) - (0x1p52 + 1023);
  const double f = std::bit_cast<double>((bits & fraction) + half_root) - 1.0;
  const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  return k * ln2_high - ((half_square - (s * (half_square + z * polynomial(z, p)) + k * ln2_low)) - f);
}

struct Turn {
  double cos, sin;
};
/// Cosine and sine of 2 pi bits / 2^32. The highest bits give the nearest multiple of pi / 2; the rest is at
/// most pi / 4.
HOLDFAST_INLINE Turn turn_of(std::uint32_t bits) {
  constexpr double half_pi_high = 0x1.921fb544p+0, half_pi_low = 0x1.0b4611a626331p-34;
  // (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2
  constexpr std::array of_sin{-0x1.5555555555555p-3, 0x1.111111111110ap-7,   -0x1.a01a01a018885p-13,
                              0x1.71de3a5313911p-19, -0x1.ae64526fdee39p-26, 0x1.61207cce04331p-33,
                              -0x1.aa9bc9f405673p-41};
  constexpr std::array of_cos{0x1.5555555555555p-5,   -0x1.6c16c16c16c09p-10, 0x1.a01a01a01844fp-16,
                              -0x1.27e4fb7581302p-22, 0x1.1eed8c32f1021p-29,  -0x1.9392cccc6be36p-37,
                              0x1.aa9bc439ae3a9p-45};
  const double angle = 2.0 * std::numbers::pi * 0x1p-32 * bits;
  const std::uint32_t quarter = (bits >> 30) + (bits >> 29 & 1);
  const double n = quarter, r = (angle - n * half_pi_high) - n * half_pi_low, z = r * r;
  const double sin = r + r * z * polynomial(z, of_sin);
  const double half = 0.5 * z, rest = 1.0 - half;
  const double cos = rest + (((1.0 - rest) - half) + z * z * polynomial(z, of_cos));
  const auto with_sign = [](double x, std::uint32_t second_bit) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) ^ std::uint64_t{second_bit & 2} << 62);
  };
  const bool odd = (quarter & 1) != 0;
  return {with_sign(odd ? sin : cos, quarter + 1), with_sign(odd ? cos : sin, quarter)};
}

HOLDFAST_VECTOR_WIDTHS void fill(std::uint64_t first, std::uint64_t name, std::uint64_t seed, double scale,
                                 float* out) {
  Words bits;
  draw(first, name, seed, bits);
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const double uniform = (bits[pair][l] + 1.0) * 0x1p-32;  // (0, 1]
      const double radius = std::sqrt(-2.0 * logarithm(uniform));
      const Turn turn = turn_of(bits[pair + 1][l]);
      out[4 * l + pair] = static_cast<float>(scale * (radius * turn.cos));
      out[4 * l + pair + 1] = static_cast<float>(scale * (radius * turn.sin));
    }
  }
}

}  // namespace

void normals(std::uint64_t first, std::uint64_t name, std::uint64_t seed, double scale,
             std::span<float> out) {
  expects(out.size() % 4 == 0, "normals come four at a time");
  for (std::size_t at = 0; at < out.size(); at += 4 * lanes, first += lanes) {
    if (out.size() - at >= 4 * lanes) {
      fill(first, name, seed, scale, out.data() + at);
    } else {
      std::array<float, 4 * lanes> room;
      fill(first, name, seed, scale, room.data());
      std::copy_n(room.data(), out.size() - at, out.data() + at);
    }
  }
}

}  // namespace holdfast::model

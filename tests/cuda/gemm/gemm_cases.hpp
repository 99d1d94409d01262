#pragma once
// Random products with their answers in fp64: operands inside larger matrices, with NaN wherever a product
// must not read and a pattern wherever it must not write.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/fp8.hpp"
#include "src/cuda/gemm/product_plan.hpp"

namespace holdfast::cuda::test {

inline double read_element(const std::byte* at, DType type) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, bytes_of(type));
  switch (type) {
    case DType::fp32:
      return double{std::bit_cast<float>(bits)};
    case DType::bf16:
      return double{to_float(Bf16{static_cast<std::uint16_t>(bits)})};
    case DType::e4m3:
      return double{to_float(E4m3{static_cast<std::uint8_t>(bits)})};
    case DType::e5m2:
      return double{to_float(E5m2{static_cast<std::uint8_t>(bits)})};
  }
  return NAN;
}
inline void write_element(std::byte* at, DType type, float x) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (type == DType::bf16) bits = to_bf16(x).bits;
  if (type == DType::e4m3) bits = to_e4m3(x).bits;
  if (type == DType::e5m2) bits = to_e5m2(x).bits;
  std::memcpy(at, &bits, bytes_of(type));
}
inline double read_element(const ConstMat& m, std::int64_t r, std::int64_t c) {
  return read_element(m.data + (r * m.stride + c) * bytes_of(m.type), m.type);
}

/// What a product is asked for.
struct GemmCase {
  std::int64_t m = 1, n = 1, k = 1;
  DType a = DType::fp32, b = DType::fp32, y = DType::fp32;
  bool transpose_a = false, transpose_b = false, add = false, bias = false;
  std::int64_t gap = 0;    ///< elements between rows
  std::int64_t front = 0;  ///< elements before the first
  std::string name() const {
    std::string text = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " ";
    text += std::string(name_of(a)) + "*" + std::string(name_of(b)) + "->" + std::string(name_of(y));
    text += std::string(" ") + (transpose_a ? "t" : "n") + (transpose_b ? "t" : "n");
    text += std::string(add ? " add" : "") + (bias ? " bias" : "") + " gap " + std::to_string(gap);
    return text;
  }
};

/// One matrix inside host memory; all outside of it is `outside` (a byte).
struct Frame {
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0, stride = 0, front = 0;
  std::vector<std::byte> bytes;

  Frame(DType t, std::int64_t r, std::int64_t c, const GemmCase& like, std::byte outside)
      : type(t),
        rows(r),
        cols(c),
        stride(c + like.gap),
        front(like.front),
        bytes(as_size((front + rows * stride + 16) * bytes_of(t)), outside) {}
  /// The matrix when the frame lies at `memory`.
  Mat at(void* memory) const {
    return {static_cast<std::byte*>(memory) + front * bytes_of(type), type, rows, cols, stride};
  }
  Mat here() { return at(bytes.data()); }
  /// Small whole numbers (exact in every type and sum) or normal ones.
  void fill(std::mt19937_64& generator, bool whole) {
    std::normal_distribution<float> normal;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        write_element(bytes.data() + (front + r * stride + c) * bytes_of(type), type,
                      whole ? static_cast<float>(static_cast<int>(generator() % 7) - 3) : normal(generator));
  }
};

/// Operands in host memory, and the answer.
struct GemmProblem {
  GemmCase what;
  Frame a, b, y, bias;
  alignas(16) float inverse_a = 0.5f;
  alignas(16) float inverse_b = 0.125f;

  /// `whole`: numbers whose sums are exact.
  GemmProblem(const GemmCase& c, unsigned seed, bool whole)
      : what(c),
        a(c.a, c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c, std::byte{0xff}),
        b(c.b, c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c, std::byte{0xff}),
        y(c.y, c.m, c.n, c, std::byte{0xff}),
        bias(is_fp8(c.a) ? DType::bf16 : c.a, 1, c.n, c, std::byte{0xff}) {
    std::mt19937_64 generator(seed);
    a.fill(generator, whole), b.fill(generator, whole), bias.fill(generator, whole);
    if (c.add) y.fill(generator, whole);  // else what was there must not be read
  }

  /// The product on copies of the frames' memory.
  Product product(void* at_a, void* at_b, void* at_y, void* at_bias, const float* scale_a,
                  const float* scale_b) const {
    Product p;
    p.y = y.at(at_y);
    p.a = a.at(at_a);
    p.b = b.at(at_b);
    p.transpose_a = what.transpose_a;
    p.transpose_b = what.transpose_b;
    p.add = what.add;
    if (what.bias) p.bias = bias.at(at_bias);
    if (is_fp8(what.a)) {
      p.inverse_a = scale_a;
      p.inverse_b = scale_b;
    }
    return p;
  }
  Product here() {
    return product(a.bytes.data(), b.bytes.data(), y.bytes.data(), bias.bytes.data(), &inverse_a, &inverse_b);
  }

  /// Differences between y's memory `after` and the answer: elements further off than `rounding_of_sums`
  /// allows (a factor on k * 2^-24 * sum of |terms|), plus half a unit of the result's type, with a bias also
  /// half a unit of the sum before it (cuBLASLt rounds twice then in some of its algorithms), and anything
  /// that changed outside of the matrix.
  /// "" when there is none.
  std::string check(const std::vector<std::byte>& after, double rounding_of_sums = 1) const {
    const Product before = const_cast<GemmProblem*>(this)->here();
    const double scale = is_fp8(what.a) ? double{inverse_a} * double{inverse_b} : 1;
    std::vector<std::byte> rest = after;
    for (std::int64_t r = 0; r < what.m; ++r)
      for (std::int64_t c = 0; c < what.n; ++c) {
        double sum = 0, size = 0;
        for (std::int64_t i = 0; i < what.k; ++i) {
          const double term =
              (what.transpose_a ? read_element(before.a, i, r) : read_element(before.a, r, i)) *
              (what.transpose_b ? read_element(before.b, c, i) : read_element(before.b, i, c));
          sum += term * scale;
          size += std::fabs(term) * scale;
        }
        const auto half_unit = [&](double x) {
          return x == 0 ? 0 : std::ldexp(1.0, std::ilogb(x) - (y.type == DType::bf16 ? 8 : 24));
        };
        const double before_bias = what.bias ? half_unit(sum) : 0;
        for (const double extra : {what.bias ? read_element(before.bias, 0, c) : 0.0,
                                   what.add ? read_element(before.y, r, c) : 0.0})
          sum += extra, size += std::fabs(extra);
        const std::size_t place = (y.front + r * y.stride + c) * bytes_of(y.type);
        const double got = read_element(after.data() + place, y.type);
        const double allowed = rounding_of_sums * static_cast<double>(what.k + 2) * size * 0x1p-24 +
                               half_unit(sum) + before_bias;
        if (!(std::fabs(got - sum) <= allowed))
          return what.name() + ": row " + std::to_string(r) + " column " + std::to_string(c) + " is " +
                 std::to_string(got) + ", not " + std::to_string(sum);
        std::memcpy(rest.data() + place, y.bytes.data() + place, bytes_of(y.type));
      }
    return rest == y.bytes ? "" : what.name() + ": memory outside of the result changed";
  }
};

/// Every form of product: transposes, types, add, bias, sub-matrices, sizes around those of tiles.
inline std::vector<GemmCase> gemm_cases() {
  std::vector<GemmCase> cases;
  const std::int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {16, 16, 16}, {33, 64, 48}, {70, 17, 129}};
  for (const auto& [m, n, k] : sizes)
    for (int form = 0; form < 4; ++form)
      for (const auto& [in, out] :
           {std::pair{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::fp32}})
        for (const bool add : {false, true})
          for (const bool bias : {false, true}) {
            if ((add && out != DType::fp32) || (bias && in != out)) continue;
            for (const std::int64_t gap : {0, 3})
              cases.push_back({m, n, k, in, in, out, (form & 1) != 0, (form & 2) != 0, add, bias, gap, gap});
          }
  for (const auto& [a, b] :
       {std::pair{DType::e4m3, DType::e4m3}, {DType::e4m3, DType::e5m2}, {DType::e5m2, DType::e4m3}})
    for (const DType y : {DType::bf16, DType::fp32})
      for (const bool add : {false, true})
        for (const bool bias : {false, true}) {
          if (add && y != DType::fp32) continue;
          for (const std::int64_t gap : {0, 16})
            cases.push_back({48, 32, 64, a, b, y, false, true, add, bias, gap, gap});
        }
  return cases;
}

}  // namespace holdfast::cuda::test

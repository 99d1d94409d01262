// 8-bit copies against their definition, element for element, and products of them against fp64.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/fp8.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

constexpr std::uint8_t canary8 = 0xa5;

/// Bytes in a larger frame, which shows what is written outside.
struct Bytes {
  std::int64_t rows, cols, stride;
  std::vector<std::uint8_t> memory;
  Bytes(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), stride(c + 3), memory(as_size(5 + r * stride), canary8) {}
  Mat mat(DType type) {
    Mat m = tensor::dense(memory.data() + 5, type, rows, cols);
    m.stride = stride;
    return m;
  }
  std::uint8_t at(std::int64_t r, std::int64_t c) const { return memory[5 + r * stride + c]; }
  bool frame_is_whole() const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i) - 5;
      if ((place < 0 || place % stride >= cols) && memory[i] != canary8) return false;
    }
    return true;
  }
};

std::uint8_t expected(float x, DType type) { return type == DType::e4m3 ? to_e4m3(x).bits : to_e5m2(x).bits; }
double number(std::uint8_t bits, DType type) {
  return type == DType::e4m3 ? to_float(E4m3{bits}) : to_float(E5m2{bits});
}

template <class T>
class Fp8Copies : public ::testing::Test {
 protected:
  tensor::InlineStream stream;
  /// Values over many magnitudes, with everything that is special.
  static std::vector<T> values(std::int64_t count) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    std::vector<T> x;
    for (std::int64_t i = 0; i < count; ++i)
      x.push_back(element<T>(std::ldexp(normal(generator), static_cast<int>(generator() % 40) - 25)));
    const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e30f, -1e30f, 0x1p-130f, 464.0f, 448.0f};
    for (std::size_t i = 0; i < std::size(special) && i < x.size(); ++i) x[i] = element<T>(special[i]);
    return x;
  }
};
using Sources = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Fp8Copies, Sources);

TYPED_TEST(Fp8Copies, EveryElementIsScaledAndRoundedOnceInBothOrders) {
  for (const int threads : {1, 3}) {
    const auto k = make_cpu_kernels(threads);
    for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 200}, {64, 64}, {65, 63}, {200, 129}})
      for (const DType type : {DType::e4m3, DType::e5m2})
        for (const float scale : {1.0f, 64.0f, 0x1p-9f}) {
          const auto x = this->values(std::int64_t{rows} * (cols + 2));
          ConstMat in = tensor::dense(x.data(), rows, cols);
          in.stride = cols + 2;
          for (const int wanted : {1, 2, 3}) {
            Bytes out(rows, cols), transposed(cols, rows);
            std::uint32_t amax = 0;
            Quantize q;
            if ((wanted & 1) != 0) q.out = out.mat(type);
            if ((wanted & 2) != 0) q.transposed = transposed.mat(type);
            q.scale = &scale;
            q.amax = &amax;
            k->quantize(this->stream, in, q);
            ASSERT_TRUE(out.frame_is_whole() && transposed.frame_is_whole());
            float most = 0;
            for (int r = 0; r < rows; ++r)
              for (int c = 0; c < cols; ++c) {
                const float value = tensor::to_float(x[r * (cols + 2) + c]);
                most = std::fmax(most, std::fabs(value));
                const std::uint8_t want = expected(value * scale, type);
                ASSERT_EQ(out.at(r, c), (wanted & 1) != 0 ? want : canary8);
                ASSERT_EQ(transposed.at(c, r), (wanted & 2) != 0 ? want : canary8);
              }
            ASSERT_EQ(std::bit_cast<float>(amax), most);
          }
        }
  }
}

TYPED_TEST(Fp8Copies, TheLargestGrowsAndANanIsLargerThanAll) {
  using T = TypeParam;
  const auto k = make_cpu_kernels(2);
  std::vector<T> x(300, element<T>(-2.0f));
  auto amax_of = [&](std::uint32_t before) {
    std::uint32_t amax = before;
    k->amax(this->stream, tensor::dense(x.data(), 3, 100), &amax);
    std::uint32_t same = before;  // recorded alone
    Quantize q;
    q.amax = &same;
    k->quantize(this->stream, tensor::dense(x.data(), 3, 100), q);
    EXPECT_EQ(same, amax);
    return std::bit_cast<float>(amax);
  };
  EXPECT_EQ(amax_of(0), 2.0f);
  EXPECT_EQ(amax_of(std::bit_cast<std::uint32_t>(3.0f)), 3.0f);
  x[200] = element<T>(-INFINITY);
  EXPECT_EQ(amax_of(0), INFINITY);
  x[100] = element<T>(NAN);
  EXPECT_TRUE(std::isnan(amax_of(0)));
}

TEST(Fp8Kernels, ScalesAreTheLargestThatFit) {
  const auto k = make_cpu_kernels(1);
  tensor::InlineStream stream;
  const float amax[] = {448.0f, 449.0f, 0.0f, INFINITY, 1.75f, 1.7501f};
  for (const auto& [type, ratio] : {std::pair{DType::e4m3, 1.0f}, {DType::e5m2, 128.0f}}) {
    std::uint32_t bits[6];
    std::memcpy(bits, amax, sizeof bits);
    float scale[6], inverse[6];
    k->scales(stream, scale, inverse, bits, type, 6);
    const float want[] = {1, 0.5f, 1 / ratio, 1 / ratio, 256, 128};
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(scale[i], want[i] * ratio) << i;
      EXPECT_EQ(scale[i] * inverse[i], 1.0f);
    }
  }
}

struct Operands8 {
  DType a, b;
};
class Fp8Products : public ::testing::TestWithParam<Operands8> {
 protected:
  tensor::InlineStream stream;
};

/// An 8-bit copy of random numbers and what it is as numbers.
struct Copy {
  Bytes bytes;
  DType type;
  float scale, inverse;
  std::vector<double> values;
  Copy(std::int64_t rows, std::int64_t cols, DType t, float s, unsigned seed)
      : bytes(rows, cols), type(t), scale(s), inverse(1 / s) {
    const Array x = random_array(rows, cols, seed, 100.0 / scale);
    const Floats from = floats(x);
    tensor::InlineStream stream;
    make_cpu_kernels(1)->quantize(stream, view(from, cols), {bytes.mat(type), {}, &scale, nullptr});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) values.push_back(number(bytes.at(r, c), type) / scale);
  }
  double at(std::int64_t r, std::int64_t c) const { return values[r * bytes.cols + c]; }
};

TEST_P(Fp8Products, AreThoseOfTheNumbersThatTheCopiesHold) {
  const auto [type_a, type_b] = GetParam();
  for (const auto& [m, n, depth] : {std::tuple{1, 1, 1}, {5, 3, 700}, {130, 67, 96}}) {
    Copy a(m, depth, type_a, 0x1p7f, 1), b(n, depth, type_b, 0x1p-5f, 2);
    const auto bias = elements<Bf16>(random_array(1, n, 3, 1e3));
    for (const bool biased : {false, true})
      for (const DType type : {DType::bf16, DType::fp32})
        for (const Write write : {Write::replace, Write::add}) {
          if (type == DType::bf16 && write == Write::add) continue;
          std::vector<std::vector<double>> results;
          for (const int threads : {1, 3}) {
            const auto k = make_cpu_kernels(threads);
            std::vector<float> y(as_size(m) * n, write == Write::add ? 0.75f : NAN);
            const Mat out = type == DType::fp32 ? tensor::dense(y.data(), m, n)
                                                : tensor::dense(reinterpret_cast<Bf16*>(y.data()), m, n);
            k->matmul_fp8(stream, out, a.bytes.mat(type_a), b.bytes.mat(type_b), &a.inverse, &b.inverse,
                          write, biased ? matrix(bias, n) : ConstMat{});
            std::vector<double> got;
            for (std::int64_t r = 0; r < m; ++r)
              for (std::int64_t c = 0; c < n; ++c)
                got.push_back(type == DType::fp32 ? out.row<float>(r)[c]
                                                  : tensor::to_float(out.row<Bf16>(r)[c]));
            results.push_back(got);
          }
          ASSERT_EQ(results[0], results[1]) << "threads";
          for (std::int64_t r = 0; r < m; ++r)
            for (std::int64_t c = 0; c < n; ++c) {
              double want = biased ? tensor::to_float(bias[c]) : 0, terms = std::fabs(want);
              for (std::int64_t i = 0; i < depth; ++i) {
                want += a.at(r, i) * b.at(c, i);
                terms += std::fabs(a.at(r, i) * b.at(c, i));
              }
              if (write == Write::add) {
                want += 0.75;
                terms += 0.75;
              }
              // Each of depth + 2 additions rounds a sum of at most `terms` to fp32; the result is rounded to
              // its type.
              const double sums = terms * (depth + 2) * 0x1p-24;
              const double bound = sums + (type == DType::bf16 ? (std::fabs(want) + sums) * 0x1p-8 : 0);
              ASSERT_NEAR(results[0][r * n + c], want, bound);
            }
        }
  }
}

TEST_P(Fp8Products, AScaleOnBothSidesOfAProductChangesNoBit) {
  const auto [type_a, type_b] = GetParam();
  Copy a(33, 70, type_a, 1.0f, 1), b(20, 70, type_b, 1.0f, 2);
  const auto k = make_cpu_kernels(1);
  auto product = [&](float inverse_a, float inverse_b) {
    Floats y(33 * 20);
    k->matmul_fp8(stream, view(y, 20), a.bytes.mat(type_a), b.bytes.mat(type_b), &inverse_a, &inverse_b,
                  Write::replace);
    return y;
  };
  const Floats plain = product(1, 1);
  Floats scaled = product(0x1p-20f, 0x1p9f);
  for (float& x : scaled) x *= 0x1p11f;
  EXPECT_EQ(scaled, plain);
}

INSTANTIATE_TEST_SUITE_P(Types, Fp8Products,
                         ::testing::Values(Operands8{DType::e4m3, DType::e4m3},
                                           Operands8{DType::e5m2, DType::e4m3},
                                           Operands8{DType::e4m3, DType::e5m2}),
                         [](const auto& test) {
                           return std::string(name_of(test.param.a)) + "_" +
                                  std::string(name_of(test.param.b));
                         });

TEST(Fp8Kernels, NormAndSwigluQuantizeWhatTheyWrite) {
  const auto k = make_cpu_kernels(2);
  tensor::InlineStream stream;
  const std::int64_t tokens = 70, d = 96;
  const auto x = elements<Bf16>(random_array(tokens, 2 * d, 1)),
             gain = elements<Bf16>(random_array(1, 2 * d, 2));
  std::vector<Bf16> normed(x.size()), activated(x.size() / 2);
  Floats rms(tokens);
  const float scale = 64;
  auto check = [&](ConstMat out, const Bytes& copy, const Bytes& transposed, std::uint32_t amax) {
    Bytes want(out.rows, out.cols), want_transposed(out.cols, out.rows);
    std::uint32_t want_amax = 0;
    k->quantize(stream, out, {want.mat(DType::e4m3), want_transposed.mat(DType::e4m3), &scale, &want_amax});
    EXPECT_EQ(copy.memory, want.memory);
    EXPECT_EQ(transposed.memory, want_transposed.memory);
    EXPECT_EQ(amax, want_amax);
    EXPECT_NE(amax, 0u);
  };
  Bytes a(tokens, 2 * d), at(2 * d, tokens), b(tokens, d), bt(d, tokens);
  std::uint32_t amax_a = 0, amax_b = 0;
  const Quantize qa{a.mat(DType::e4m3), at.mat(DType::e4m3), &scale, &amax_a},
      qb{b.mat(DType::e4m3), bt.mat(DType::e4m3), &scale, &amax_b};
  k->norm(stream,
          {matrix(x, 2 * d), {}, {}, matrix(normed, 2 * d), matrix(gain, 2 * d), rms.data(), 1e-5f, &qa});
  check(matrix(normed, 2 * d), a, at, amax_a);
  k->swiglu(stream, matrix(activated, d), matrix(x, 2 * d), &qb);
  check(matrix(activated, d), b, bt, amax_b);
}

TEST(Fp8Kernels, RefuseWhatNoHardwareMultiplies) {
  const auto k = make_cpu_kernels(1);
  tensor::InlineStream stream;
  Bytes a(4, 4), b(4, 4);
  Floats y(16);
  const float one = 1;
  EXPECT_THROW(
      k->matmul_fp8(stream, view(y, 4), a.mat(DType::e5m2), b.mat(DType::e5m2), &one, &one, Write::replace),
      std::logic_error);
  EXPECT_THROW(k->quantize(stream, view(y, 4), {a.mat(DType::e4m3), b.mat(DType::e5m2), &one, nullptr}),
               std::logic_error);
}

}  // namespace
}  // namespace holdfast::testing

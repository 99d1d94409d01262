// Ordered sums, conversions and AdamW.
#include "tests/kernels/compare.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

class OptimKernels : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};
template <class T>
class TypedOptimKernels : public OptimKernels {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(TypedOptimKernels, Types);

TYPED_TEST(TypedOptimKernels, TermsAreAddedFromLeftToRightAndCopiesTheFirst) {
  const std::int64_t n = 70001;
  const DType type = tensor::dtype_of<TypeParam>();
  std::vector<std::vector<TypeParam>> terms;
  for (unsigned s = 0; s < 5; ++s) terms.push_back(elements<TypeParam>(random_array(1, n, s)));
  for (auto& term : terms) term[0] = element<TypeParam>(-0.0f);
  Floats want;
  for (const TypeParam x : terms[0]) want.push_back(tensor::to_float(x));
  for (std::size_t s = 1; s < terms.size(); ++s)
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += tensor::to_float(terms[s][i]);
  Floats sum(want.size(), NAN);
  const std::vector<const void*> first = {terms[0].data(), terms[1].data()};
  const std::vector<const void*> rest = {terms[2].data(), terms[3].data(), terms[4].data()};
  plain_sum(*this->k, this->stream, sum.data(), first, type, n, true);
  plain_sum(*this->k, this->stream, sum.data(), rest, type, n, false);
  EXPECT_EQ(sum, want);
  EXPECT_TRUE(std::signbit(sum[0]));  // 0 + -0 would be +0
}

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST_F(OptimKernels, ConvertWidensEveryBf16Exactly) {
  std::vector<Bf16> all(65536), back(all.size());
  Floats wide(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  k->convert(stream, wide.data(), DType::fp32, all.data(), DType::bf16, 65536);
  k->convert(stream, back.data(), DType::bf16, wide.data(), DType::fp32, 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), i << 16);
    const bool nan = (i & 0x7fff) > 0x7f80;
    ASSERT_EQ(back[i].bits, nan ? i | 0x40 : i);  // a NaN becomes a quiet one
  }
}

TEST_F(OptimKernels, ConvertRoundsToTheNearestAndTiesToEven) {
  Floats x;
  for (std::uint32_t upper = 0; upper < 65536; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(from_bits(upper << 16 | lower));
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<Bf16> got(x.size());
  k->convert(stream, got.data(), DType::bf16, x.data(), DType::fp32, n);
  // Infinity stands for the number that would follow the largest one.
  auto value = [](std::uint32_t bits) {
    return (bits & 0x7fff) == 0x7f80 ? std::ldexp((bits & 0x8000) != 0 ? -1.0 : 1.0, 128)
                                     : static_cast<double>(from_bits(bits << 16));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(got[i], tensor::to_bf16(x[i]));
    const std::uint32_t down = std::bit_cast<std::uint32_t>(x[i]) >> 16;
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(tensor::to_float(got[i])));
    } else if (std::isinf(x[i])) {
      ASSERT_EQ(tensor::to_float(got[i]), x[i]);
    } else {
      const double below = std::fabs(x[i] - value(down)), above = std::fabs(value(down + 1) - x[i]);
      const bool up = above < below || (above == below && down % 2 == 1);
      ASSERT_EQ(got[i].bits, up ? down + 1 : down) << x[i];
    }
  }
  // In place, and for a tail after whole vectors: the same.
  for (const std::int64_t count : {n, std::int64_t{40'001}, std::int64_t{7}}) {
    Floats in_place = x;
    k->convert(stream, in_place.data(), DType::bf16, in_place.data(), DType::fp32, count);
    const auto* bits = reinterpret_cast<const Bf16*>(in_place.data());
    ASSERT_TRUE(std::equal(bits, bits + count, got.begin()));
  }
}

TEST_F(OptimKernels, ConvertToTheSameTypeCopies) {
  const Floats x = floats(random_array(1, 40'001, 1));
  const auto narrow = elements<Bf16>(random_array(1, 40'001, 1));
  Floats out(x.size());
  std::vector<Bf16> narrow_out(x.size());
  k->convert(stream, out.data(), DType::fp32, x.data(), DType::fp32, 40'001);
  k->convert(stream, narrow_out.data(), DType::bf16, narrow.data(), DType::bf16, 40'001);
  EXPECT_EQ(out, x);
  EXPECT_EQ(narrow_out, narrow);
}

TEST_F(OptimKernels, AdamWIsCloseToExactArithmetic) {
  const std::int64_t n = 1000;
  for (const double decay : {0.1, 0.0}) {
    Floats p = floats(random_array(1, n, 1)), m(p.size()), v(p.size());
    std::vector<double> rp(p.begin(), p.end()), rm(p.size()), rv(p.size());
    for (int t = 1; t <= 20; ++t) {
      const Floats g = floats(random_array(1, n, 100 + static_cast<unsigned>(t)));
      const double lr = 1e-2 / t, b1 = 0.9, b2 = 0.95, epsilon = 1e-8, scale = 1.0 / 37;
      k->adamw(stream, {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data(), DType::fp32, n},
               step_scalars(lr, decay, b1, b2, epsilon, t, scale));
      for (std::size_t i = 0; i < rp.size(); ++i) {
        const double gi = scale * g[i];
        rm[i] = b1 * rm[i] + (1 - b1) * gi;
        rv[i] = b2 * rv[i] + (1 - b2) * gi * gi;
        rp[i] -= lr * decay * rp[i];
        rp[i] -= lr * (rm[i] / (1 - std::pow(b1, t))) / (std::sqrt(rv[i] / (1 - std::pow(b2, t))) + epsilon);
      }
      EXPECT_LT(distance(p, rp), 1e-6) << "update " << t;
    }
  }
}

TYPED_TEST(TypedOptimKernels, AdamWFollowsTheWrittenFormulaBitForBit) {
  const std::int64_t n = 1003;
  Floats p = floats(random_array(1, n, 1)), want_p = p;
  std::vector<TypeParam> m(p.size()), v(p.size()), want_m = m, want_v = v;
  for (int t = 1; t <= 5; ++t) {
    const Floats gradient = floats(random_array(1, n, 100 + static_cast<unsigned>(t)));
    const StepScalars s = step_scalars(1e-2 / t, 0.1, 0.9, 0.95, 1e-8, t, 1.0 / 37);
    this->k->adamw(this->stream,
                   {p.data(), gradient.data(), m.data(), v.data(), p.data(), m.data(), v.data(),
                    tensor::dtype_of<TypeParam>(), n},
                   s);
    for (std::size_t i = 0; i < want_p.size(); ++i) {
      const float g = s.gradient_scale * gradient[i];
      const float new_m = s.beta1 * tensor::to_float(want_m[i]) + s.one_minus_beta1 * g;
      const float new_v = s.beta2 * tensor::to_float(want_v[i]) + s.one_minus_beta2 * (g * g);
      want_p[i] = want_p[i] - s.lr_decay * want_p[i];
      want_p[i] =
          want_p[i] - s.lr * ((new_m * s.inverse_bias1) / (std::sqrt(new_v * s.inverse_bias2) + s.epsilon));
      want_m[i] = element<TypeParam>(new_m);
      want_v[i] = element<TypeParam>(new_v);
    }
    ASSERT_EQ(p, want_p);
    ASSERT_EQ(m, want_m);
    ASSERT_EQ(v, want_v);
  }
}

}  // namespace
}  // namespace holdfast::testing

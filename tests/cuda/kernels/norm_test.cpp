#include "src/cuda/kernels/norm.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/fp8.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::Write;
using test::DeviceArray;
using test::rows_of;

constexpr float epsilon = 1e-5f;

template <class T>
class NormOnGpu : public ::testing::Test {
 protected:
  struct Shape {
    std::int64_t rows, d, gap = 0, first = 0;
    std::int64_t stride() const { return d + gap; }
    std::size_t size() const { return as_size(first + rows * stride()); }
    tensor::Mat mat(T* data) const { return rows_of(data + first, rows, d, stride()); }
    std::size_t at(std::int64_t t, std::int64_t i) const { return as_size(first + t * stride() + i); }
  };
  struct Forward {
    std::vector<T> sum, out;
    std::vector<float> inverse_rms;
  };
  struct Backward {
    std::vector<T> d_sum;
    std::vector<float> d_gain;
  };

  static std::vector<T> random(const Shape& s, unsigned seed, double scale = 1) {
    return test::random_elements<T>(static_cast<std::int64_t>(s.size()), seed, scale);
  }
  static std::vector<T> gain_of(std::int64_t d) { return test::random_elements<T>(d, 99); }

  /// An empty branch: none.
  static Forward forward(const Shape& s, const std::vector<T>& residual, const std::vector<T>& branch,
                         const kernels::Quantize* q = nullptr) {
    const DeviceArray<T> x(residual), b(branch), gain(gain_of(s.d)), sum(s.size()), out(s.size());
    const DeviceArray<float> inverse_rms(s.rows);
    kernels::Norm n;
    n.residual = s.mat(x.data());
    n.out = s.mat(out.data());
    n.gain = rows_of(gain.data(), 1, s.d, s.d);
    if (!branch.empty()) {
      n.branch = s.mat(b.data());
      n.sum = s.mat(sum.data());
    }
    n.inverse_rms = inverse_rms.data();
    n.epsilon = epsilon;
    n.quantize = q;
    norm(test::gpu(), test::stream(), n);
    return {sum.download(), out.download(), inverse_rms.download()};
  }
  static Backward backward(const Shape& s, const std::vector<T>& sum, const std::vector<T>& d_out,
                           const std::vector<T>& arriving, const std::vector<float>& inverse_rms, Write write,
                           bool with_gain = true) {
    const DeviceArray<T> x(sum), dy(d_out), gain(gain_of(s.d)), d_sum(arriving);
    const DeviceArray<float> r(inverse_rms), d_gain(as_size(s.d)),
        scratch(as_size(norm_backward_scratch(s.rows, s.d)));
    kernels::NormGradient g;
    g.sum = s.mat(x.data());
    g.d_out = s.mat(dy.data());
    g.d_sum = s.mat(d_sum.data());
    g.gain = rows_of(gain.data(), 1, s.d, s.d);
    g.inverse_rms = r.data();
    g.write = write;
    g.d_gain = with_gain ? d_gain.data() : nullptr;
    norm_backward(test::gpu(), test::stream(), g, with_gain ? scratch.data() : nullptr);
    return {d_sum.download(), d_gain.download()};
  }
  /// Half a unit in the last place of the result, and the roundings of fp32 before it; `sizes`: of what was
  /// added.
  static double tolerance(double value, double sizes) {
    return (sizeof(T) == 2 ? 0x1p-8 * std::abs(value) : 0) + 3e-6 * sizes;
  }

  static void expect_forward(const Shape& s, bool with_branch) {
    const auto residual = random(s, 1, 3);
    const auto branch = with_branch ? random(s, 2) : std::vector<T>();
    const auto gain = gain_of(s.d);
    const Forward got = forward(s, residual, branch);
    for (std::int64_t t = 0; t < s.rows; ++t) {
      double squares = 0;
      const auto summed = [&](std::int64_t i) {
        const float r = to_float(residual[s.at(t, i)]);
        return with_branch ? test::element<T>(r + to_float(branch[s.at(t, i)])) : residual[s.at(t, i)];
      };
      for (std::int64_t i = 0; i < s.d; ++i) squares += std::pow(to_float(summed(i)), 2);
      const double inverse_rms = 1 / std::sqrt(squares / static_cast<double>(s.d) + epsilon);
      ASSERT_NEAR(got.inverse_rms[t], inverse_rms, 1e-6 * inverse_rms);
      for (std::int64_t i = 0; i < s.d; ++i) {
        if (with_branch) {
          ASSERT_EQ(to_float(got.sum[s.at(t, i)]), to_float(summed(i)));
        }
        const double want = to_float(summed(i)) * inverse_rms * to_float(gain[i]);
        ASSERT_NEAR(to_float(got.out[s.at(t, i)]), want, tolerance(want, std::abs(want)))
            << s.d << ' ' << t << ' ' << i;
      }
    }
  }

  static void expect_backward(const Shape& s, Write write) {
    const auto x = random(s, 1, 3), dy = random(s, 2), arriving = random(s, 4);
    const auto gain = gain_of(s.d);
    const auto inverse_rms = forward(s, x, {}).inverse_rms;
    const Backward got = backward(s, x, dy, arriving, inverse_rms, write);
    std::vector<double> d_gain(s.d), sizes(d_gain);
    for (std::int64_t t = 0; t < s.rows; ++t) {
      const double r = inverse_rms[t];
      double dot = 0, dot_size = 0;
      for (std::int64_t i = 0; i < s.d; ++i) {
        const auto c = as_size(i);
        const double value = to_float(x[s.at(t, i)]), d = to_float(dy[s.at(t, i)]),
                     term = to_float(gain[c]) * d * value;
        dot += term;
        dot_size += std::abs(term);
        d_gain[c] += d * value * r;
        sizes[c] += std::abs(d * value * r);
      }
      for (std::int64_t i = 0; i < s.d; ++i) {
        const auto at = s.at(t, i);
        const double before = write == Write::add ? to_float(arriving[at]) : 0,
                     r3_d = r * r * r / static_cast<double>(s.d);
        const double direct = r * to_float(gain[i]) * to_float(dy[at]);
        const double want = before + direct - to_float(x[at]) * dot * r3_d;
        const double size = std::abs(before) + std::abs(direct) + std::abs(to_float(x[at])) * dot_size * r3_d;
        ASSERT_NEAR(to_float(got.d_sum[at]), want, tolerance(want, size)) << s.d << ' ' << t << ' ' << i;
      }
    }
    for (std::size_t c = 0; c < d_gain.size(); ++c)
      ASSERT_NEAR(got.d_gain[c], d_gain[c], 3e-6 * sizes[c]) << s.d << ' ' << c;
  }

  template <class Copy>
  static void expect_copies(std::int64_t d) {
    const Shape s{5, d};
    const DeviceArray<Copy> copy(s.size()), transposed(s.size());
    const DeviceArray<float> scale(std::vector<float>{128});  // some saturate
    const DeviceArray<std::uint32_t> amax(std::vector<std::uint32_t>{0});
    const kernels::Quantize q{rows_of(copy.data(), 5, d, d), rows_of(transposed.data(), d, 5, 5),
                              scale.data(), amax.data()};
    const auto x = random(s, 1, 3);
    const auto got = forward(s, x, {}, &q);
    EXPECT_EQ(test::difference(got.out, forward(s, x, {}).out), "");
    const auto copied = copy.download(), across = transposed.download();
    std::uint32_t largest = 0;
    for (std::int64_t t = 0; t < 5; ++t)
      for (std::int64_t i = 0; i < d; ++i) {
        const float value = to_float(got.out[s.at(t, i)]);
        const Copy want = to_fp8<Copy>(value * 128);
        ASSERT_EQ(copied[s.at(t, i)], want);
        ASSERT_EQ(across[i * 5 + t], want);
        largest = std::max(largest, std::bit_cast<std::uint32_t>(std::abs(value)));
      }
    EXPECT_EQ(amax.download()[0], largest);
  }
};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(NormOnGpu, Elements);

TYPED_TEST(NormOnGpu, ForwardIsRightInFp64) {
  for (const std::int64_t d : {1, 63, 64, 100, 256, 1000, 4100})
    for (const bool with_branch : {false, true}) {
      this->expect_forward({3, d}, with_branch);
      this->expect_forward({2, d, 3, 1}, with_branch);
    }
}

TYPED_TEST(NormOnGpu, BackwardIsRightInFp64) {
  for (const std::int64_t d : {1, 63, 64, 100, 256, 1000, 4100})
    for (const Write write : {Write::add, Write::replace}) {
      this->expect_backward({3, d}, write);
      this->expect_backward({2, d, 3, 1}, write);
    }
  this->expect_backward({300, 40}, Write::add);  // many blocks, and many tokens in each
}

TYPED_TEST(NormOnGpu, TakesTheWidestRow) {
  const std::int64_t widest = norm_widest(dtype_of<TypeParam>());
  this->expect_forward({1, widest}, true);
  this->expect_backward({2, widest}, Write::add);
  const DeviceArray<TypeParam> x(1);
  const DeviceArray<float> r(1);
  kernels::Norm n;
  n.residual = n.out = rows_of(x.data(), 1, widest + 1, widest + 1), n.gain = n.residual,
  n.inverse_rms = r.data();
  n.out = rows_of(x.data(), 1, widest + 1, widest + 1);
  try {
    norm(test::gpu(), test::stream(), n);
    FAIL() << "a row that does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
  }
}

TYPED_TEST(NormOnGpu, BitsDependOnTheNumbersOnly) {
  const std::int64_t rows = 37, d = 1040;
  const typename TestFixture::Shape dense{rows, d};
  const auto x = this->random(dense, 1), b = this->random(dense, 2), dy = this->random(dense, 3);
  const auto first = this->forward(dense, x, b);
  const auto first_back = this->backward(dense, first.sum, dy, x, first.inverse_rms, Write::add);
  for (const std::int64_t gap : {0, 1, 8}) {  // the order of threads, and ways to move elements
    test::reseed(static_cast<unsigned>(gap + 5));
    const typename TestFixture::Shape s{rows, d, gap, gap};
    const auto poison = DeviceArray<TypeParam>(s.size()).download();
    const auto placed = [&](const std::vector<TypeParam>& values) {
      auto with_gaps = poison;
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t i = 0; i < d; ++i) with_gaps[s.at(t, i)] = values[dense.at(t, i)];
      return with_gaps;
    };
    const auto again = this->forward(s, placed(x), placed(b));
    EXPECT_EQ(test::difference(again.sum, placed(first.sum)), "");
    EXPECT_EQ(test::difference(again.out, placed(first.out)), "");
    EXPECT_EQ(test::difference(again.inverse_rms, first.inverse_rms), "");
    const auto back =
        this->backward(s, placed(first.sum), placed(dy), placed(x), first.inverse_rms, Write::add);
    EXPECT_EQ(test::difference(back.d_sum, placed(first_back.d_sum)), "");
    EXPECT_EQ(test::difference(back.d_gain, first_back.d_gain), "");
  }
}

TYPED_TEST(NormOnGpu, ARowHasItsBitsAmongAnyRows) {
  const typename TestFixture::Shape many{5, 100}, one{1, 100};
  const auto x = this->random(many, 1);
  const auto all = this->forward(many, x, {});
  const auto last = this->forward(one, {x.end() - 100, x.end()}, {});
  EXPECT_EQ(test::difference(last.out, {all.out.end() - 100, all.out.end()}), "");
}

TYPED_TEST(NormOnGpu, TheSumMayGoWhereTheResidualIs) {
  const typename TestFixture::Shape s{3, 520};
  const auto x = this->random(s, 1), b = this->random(s, 2);
  const auto want = this->forward(s, x, b);
  const DeviceArray<TypeParam> both(x), branch(b), gain(this->gain_of(s.d)), out(s.size());
  const DeviceArray<float> inverse_rms(3);
  kernels::Norm n;
  n.residual = s.mat(both.data());
  n.branch = s.mat(branch.data());
  n.sum = s.mat(both.data());
  n.out = s.mat(out.data());
  n.gain = rows_of(gain.data(), 1, s.d, s.d);
  n.inverse_rms = inverse_rms.data();
  n.epsilon = epsilon;
  norm(test::gpu(), test::stream(), n);
  EXPECT_EQ(test::difference(both.download(), want.sum), "");
  EXPECT_EQ(test::difference(out.download(), want.out), "");
}

TYPED_TEST(NormOnGpu, AFrozenGainChangesNothingElse) {
  const typename TestFixture::Shape s{5, 64};
  const auto x = this->random(s, 1), dy = this->random(s, 2);
  const auto r = this->forward(s, x, {}).inverse_rms;
  EXPECT_EQ(test::difference(this->backward(s, x, dy, x, r, Write::add, false).d_sum,
                             this->backward(s, x, dy, x, r, Write::add, true).d_sum),
            "");
}

TYPED_TEST(NormOnGpu, WithoutRowsTheGainsGradientIsZero) {
  const auto got = this->backward({0, 10}, {}, {}, {}, {}, Write::add);
  EXPECT_EQ(test::difference(got.d_gain, std::vector<float>(10, 0.0f)), "");
}

TYPED_TEST(NormOnGpu, CopiesItsResultToEightBits) {
  for (const std::int64_t d : {1, 63, 64, 1040}) {
    this->template expect_copies<E4m3>(d);
    this->template expect_copies<E5m2>(d);
  }
}

TYPED_TEST(NormOnGpu, AmaxOnlyGrowsAndANanIsLarger) {
  const typename TestFixture::Shape s{3, 64};
  const std::uint32_t large = std::bit_cast<std::uint32_t>(1e6f);
  const DeviceArray<std::uint32_t> amax(std::vector<std::uint32_t>{large});
  const kernels::Quantize q{{}, {}, nullptr, amax.data()};
  auto x = this->random(s, 1);
  this->forward(s, x, {}, &q);
  EXPECT_EQ(amax.download()[0], large);
  x[70] = test::element<TypeParam>(std::nanf(""));
  this->forward(s, x, {}, &q);
  EXPECT_GT(amax.download()[0], 0x7f800000u);
}

TEST(NormOnGpuChecks, MatricesThatDoNotFitAreErrors) {
  const DeviceArray<float> x(24), r(3);
  kernels::Norm n;
  n.residual = rows_of(x.data(), 3, 8, 8), n.out = rows_of(x.data(), 3, 8, 8),
  n.gain = rows_of(x.data(), 1, 7, 7);
  n.inverse_rms = r.data();
  EXPECT_THROW(norm(test::gpu(), test::stream(), n), std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda

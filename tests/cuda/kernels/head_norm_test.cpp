#include "src/cuda/kernels/head_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::rows_of;

struct Shape {
  int heads, kv_heads, head_size;
  std::int64_t tokens, gap = 0, first = 0;  ///< elements behind every row, and before the first one
  std::int64_t normed() const { return heads + kv_heads; }
  std::int64_t cols() const { return (normed() + kv_heads) * head_size; }
  std::int64_t size() const { return first + tokens * (cols() + gap); }
};

/// All that the two passes write: with what lies between rows, so that what is not theirs shows too.
template <class T>
struct Result {
  std::vector<T> out, d_in;
  std::vector<float> inverse_rms, d_q_gain, d_k_gain;
};

template <class T>
class HeadNormOnGpu : public ::testing::Test {
 protected:
  static Result<T> on_gpu(const Shape& s, bool with_gains = true) {
    const DeviceArray<T> in(input(s)), out(zeros(s)), d(arriving(s)), q_gain(gain(s, 8)), k_gain(gain(s, 9));
    const DeviceArray<float> rms(as_size(s.tokens * s.normed())), d_q(as_size(s.head_size)),
        d_k(as_size(s.head_size)), scratch(as_size(head_norm_backward_scratch(s.tokens, s.head_size)));
    const auto n = call(s, in.data(), out.data(), q_gain.data(), k_gain.data(), rms.data());
    head_norm(test::gpu(), test::stream(), n);
    head_norm_backward(
        test::gpu(), test::stream(), n,
        {mat(s, d.data()), with_gains ? d_q.data() : nullptr, with_gains ? d_k.data() : nullptr},
        with_gains ? scratch.data() : nullptr);
    return {out.download(), d.download(), rms.download(), d_q.download(), d_k.download()};
  }
  static Result<T> on_cpu(const Shape& s) {
    std::vector<T> in = input(s), q_gain = gain(s, 8), k_gain = gain(s, 9);
    const auto h = as_size(s.head_size);
    Result<T> r{zeros(s), arriving(s), std::vector<float>(as_size(s.tokens * s.normed())),
                std::vector<float>(h), std::vector<float>(h)};
    tensor::InlineStream stream;
    const auto kernels = kernels::make_cpu_kernels(1);
    const auto n = call(s, in.data(), r.out.data(), q_gain.data(), k_gain.data(), r.inverse_rms.data());
    kernels->head_norm(stream, n);
    kernels->head_norm_backward(stream, n, {mat(s, r.d_in.data()), r.d_q_gain.data(), r.d_k_gain.data()});
    return r;
  }
  static void expect_near(const Shape& s) {
    const Result<T> got = on_gpu(s), want = on_cpu(s);
    const double rounding = sizeof(T) == 2 ? 0x1p-7 : 4e-6;  // the last place of a bf16 may differ
    expect_near(got.out, want.out, rounding);
    expect_near(got.d_in, want.d_in, rounding);
    expect_near(got.inverse_rms, want.inverse_rms, 1e-6);
    expect_near(got.d_q_gain, want.d_q_gain, 1e-5);
    expect_near(got.d_k_gain, want.d_k_gain, 1e-5);
  }
  static void expect_same(const Result<T>& got, const Result<T>& want) {
    EXPECT_EQ(test::difference(got.out, want.out), "");
    EXPECT_EQ(test::difference(got.d_in, want.d_in), "");
    EXPECT_EQ(test::difference(got.inverse_rms, want.inverse_rms), "");
    EXPECT_EQ(test::difference(got.d_q_gain, want.d_q_gain), "");
    EXPECT_EQ(test::difference(got.d_k_gain, want.d_k_gain), "");
  }
  static kernels::HeadNorm call(const Shape& s, T* in, T* out, T* q_gain, T* k_gain, float* inverse_rms) {
    kernels::HeadNorm n;
    n.in = mat(s, in);
    n.out = mat(s, out);
    n.q_gain = rows_of(q_gain, 1, s.head_size, s.head_size);
    n.k_gain = rows_of(k_gain, 1, s.head_size, s.head_size);
    n.inverse_rms = inverse_rms;
    n.heads = s.heads;
    n.kv_heads = s.kv_heads;
    n.head_size = s.head_size;
    return n;
  }

 private:
  static tensor::Mat mat(const Shape& s, T* data) {
    return rows_of(data + s.first, s.tokens, s.cols(), s.cols() + s.gap);
  }
  static std::vector<T> input(const Shape& s) { return test::random_elements<T>(s.size(), 1, 3); }
  static std::vector<T> arriving(const Shape& s) { return test::random_elements<T>(s.size(), 2); }
  static std::vector<T> zeros(const Shape& s) { return std::vector<T>(as_size(s.size())); }
  static std::vector<T> gain(const Shape& s, unsigned seed) {
    return test::random_elements<T>(s.head_size, seed);
  }
  /// As far apart as `share` of the value, or of the largest one where many small ones are added.
  template <class E>
  static void expect_near(const std::vector<E>& got, const std::vector<E>& want, double share) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 0;
    for (const E& x : want) largest = std::fmax(largest, std::fabs(to_float(x)));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double value = to_float(want[i]);
      ASSERT_NEAR(to_float(got[i]), value, share * std::fabs(value) + 4e-6 * largest) << "element " << i;
    }
  }
};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(HeadNormOnGpu, Elements);

TYPED_TEST(HeadNormOnGpu, IsNearTheCpu) {
  // A part of a pack, of a warp, all of it, and more; more heads than a block has warps.
  for (const int head_size : {2, 6, 16, 64, 126, 128, 160, 256}) this->expect_near({6, 2, head_size, 5});
  this->expect_near({32, 8, 128, 3});
  this->expect_near({2, 1, 20, 9001});  // more tokens than blocks begin with
}

TYPED_TEST(HeadNormOnGpu, BitsDependOnNoOrderAndNoAddress) {
  const auto want = this->on_gpu({6, 2, 40, 45});
  for (unsigned seed = 5; seed < 8; ++seed) {
    test::reseed(seed);
    this->expect_same(this->on_gpu({6, 2, 40, 45}), want);
  }
  for (const std::int64_t gap : {0, 3, 8})
    for (const std::int64_t first : {0, 1, 8}) this->expect_near({6, 2, 40, 5, gap, first});
}

TYPED_TEST(HeadNormOnGpu, FrozenGainsChangeNothingElse) {
  const Shape s{4, 2, 24, 21};
  EXPECT_EQ(test::difference(this->on_gpu(s, false).d_in, this->on_gpu(s).d_in), "");
}

TYPED_TEST(HeadNormOnGpu, WithoutTokensTheGradientsOfGainsAreZero) {
  const auto got = this->on_gpu({4, 2, 24, 0});
  EXPECT_EQ(test::difference(got.d_q_gain, std::vector<float>(24)), "");
  EXPECT_EQ(test::difference(got.d_k_gain, std::vector<float>(24)), "");
}

TYPED_TEST(HeadNormOnGpu, AHeadThatDoesNotFitIsRefused) {
  const Shape s{1, 1, 258, 1};
  const DeviceArray<TypeParam> x(as_size(s.size())), gain(258);
  const DeviceArray<float> rms(2);
  try {
    head_norm(test::gpu(), test::stream(),
              this->call(s, x.data(), x.data(), gain.data(), gain.data(), rms.data()));
    FAIL() << "a head that does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
  }
}

}  // namespace
}  // namespace holdfast::cuda

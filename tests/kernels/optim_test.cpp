// Ordered sums, exact norms and AdamW.
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

class OptimKernels : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};

TEST_F(OptimKernels, FoldAddsLeavesFromLeftToRightAndCopiesTheFirst) {
  const std::int64_t n = 70001;
  std::vector<Floats> leaves;
  for (unsigned s = 0; s < 5; ++s) leaves.push_back(floats(random_array(1, n, s)));
  for (Floats& leaf : leaves) leaf[0] = -0.0f;
  Floats want = leaves[0];
  for (std::size_t s = 1; s < leaves.size(); ++s)
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += leaves[s][i];
  Floats sum(want.size(), NAN);
  const std::vector<const float*> first = {leaves[0].data(), leaves[1].data()};
  const std::vector<const float*> rest = {leaves[2].data(), leaves[3].data(), leaves[4].data()};
  k->fold(stream, sum.data(), first, n, true);
  k->fold(stream, sum.data(), rest, n, false);
  EXPECT_EQ(sum, want);
  EXPECT_TRUE(std::signbit(sum[0]));  // 0 + -0 would be +0
}

TEST_F(OptimKernels, SumOfSquaresDoesNotDependOnCutsAndThreads) {
  const Floats x = floats(random_array(1, 100003, 7, 0.01));
  ExactSum whole, parts, other;
  k->sum_squares(stream, x.data(), 100003, &whole);
  for (const auto& [from, to] : {std::pair{63, 100003}, {0, 1}, {1, 63}})
    k->sum_squares(stream, x.data() + from, to - from, &parts);
  make_cpu_kernels(1)->sum_squares(stream, x.data(), 100003, &other);
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(whole, other);
  long double want = 0;
  for (const float v : x) want += static_cast<long double>(v) * v;
  EXPECT_NEAR(whole.value(), static_cast<double>(want), 1e-12 * static_cast<double>(want));
}

TEST_F(OptimKernels, AdamWFollowsTheWrittenFormula) {
  const std::int64_t n = 1000;
  for (const bool decay : {true, false}) {
    Floats p = floats(random_array(1, n, 1)), m(p.size()), v(p.size());
    std::vector<double> rp(p.begin(), p.end()), rm(p.size()), rv(p.size());
    for (int t = 1; t <= 20; ++t) {
      const Floats g = floats(random_array(1, n, 100 + static_cast<unsigned>(t)));
      const double lr = 1e-2 / t, decay_rate = 0.1, b1 = 0.9, b2 = 0.95, epsilon = 1e-8, scale = 1.0 / 37;
      k->adamw(stream, {p.data(), m.data(), v.data(), g.data(), p.data(), m.data(), v.data(), n, decay},
               step_scalars(lr, decay_rate, b1, b2, epsilon, t, scale));
      for (std::size_t i = 0; i < rp.size(); ++i) {
        const double gi = scale * g[i];
        rm[i] = b1 * rm[i] + (1 - b1) * gi, rv[i] = b2 * rv[i] + (1 - b2) * gi * gi;
        if (decay) rp[i] -= lr * decay_rate * rp[i];
        rp[i] -= lr * (rm[i] / (1 - std::pow(b1, t))) / (std::sqrt(rv[i] / (1 - std::pow(b2, t))) + epsilon);
      }
      EXPECT_LT(distance(p, rp), 1e-6) << "update " << t;
    }
  }
}

TEST_F(OptimKernels, AdamWOutOfPlaceOrInPiecesGivesTheSameBits) {
  const std::int64_t n = 50003;
  const Floats p = floats(random_array(1, n, 1)), m = floats(random_array(1, n, 2, 0.1)),
               g = floats(random_array(1, n, 4));
  Floats v = floats(random_array(1, n, 3, 0.1));
  for (float& x : v) x = std::fabs(x);
  const StepScalars s = step_scalars(1e-3, 0.1, 0.9, 0.95, 1e-8, 3, 0.01);
  Floats p1 = p, m1 = m, v1 = v;  // in place
  k->adamw(stream, {p1.data(), m1.data(), v1.data(), g.data(), p1.data(), m1.data(), v1.data(), n, true}, s);
  Floats p2(p.size()), m2(p.size()), v2(p.size());  // out of place, odd pieces
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 64}, {64, 129}, {129, 50003}})
    k->adamw(stream,
             {p.data() + from, m.data() + from, v.data() + from, g.data() + from, p2.data() + from,
              m2.data() + from, v2.data() + from, to - from, true},
             s);
  EXPECT_EQ(p1, p2);
  EXPECT_EQ(m1, m2);
  EXPECT_EQ(v1, v2);
}

}  // namespace
}  // namespace holdfast::testing

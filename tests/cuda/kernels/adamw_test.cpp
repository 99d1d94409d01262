#include "src/cuda/kernels/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using kernels::StepScalars;
using test::DeviceArray;
using test::difference;
using Floats = std::vector<float>;

template <class Moment>
class AdamW : public ::testing::Test {
 protected:
  struct State {
    Floats p;
    std::vector<Moment> m, v;
  };
  static State state(std::int64_t n) {
    State s{test::random_elements<float>(n, 1), test::random_elements<Moment>(n, 2, 1e-3),
            test::random_elements<Moment>(n, 3, 1e-6)};
    for (Moment& v : s.v) v = test::element<Moment>(std::fabs(to_float(v)));
    return s;
  }
  /// The CPU's.
  State wanted(State s, const Floats& gradient, const StepScalars& scalars) const {
    cpu->adamw(inline_stream,
               {s.p.data(), gradient.data(), s.m.data(), s.v.data(), s.p.data(), s.m.data(), s.v.data(),
                dtype_of<Moment>(), static_cast<std::int64_t>(s.p.size())},
               scalars);
    return s;
  }
  /// Of the elements from `first` on.
  static State got(const State& s, const Floats& gradient, const StepScalars& scalars, bool in_place,
                   std::size_t first) {
    const DeviceArray<float> p(s.p), g(gradient), new_p(s.p.size());
    const DeviceArray<Moment> m(s.m), v(s.v), new_m(s.m.size()), new_v(s.v.size());
    const auto& to_p = in_place ? p : new_p;
    const auto &to_m = in_place ? m : new_m, &to_v = in_place ? v : new_v;
    adamw(test::gpu(), test::stream(),
          {p.data() + first, g.data() + first, m.data() + first, v.data() + first, to_p.data() + first,
           to_m.data() + first, to_v.data() + first, dtype_of<Moment>(),
           static_cast<std::int64_t>(s.p.size() - first)},
          scalars);
    test::finish();
    State out{to_p.download(), to_m.download(), to_v.download()};
    const auto skip = static_cast<std::ptrdiff_t>(first);
    out.p.erase(out.p.begin(), out.p.begin() + skip);
    out.m.erase(out.m.begin(), out.m.begin() + skip), out.v.erase(out.v.begin(), out.v.begin() + skip);
    return out;
  }
  void expect_cpu_bits(const State& s, const Floats& gradient, const StepScalars& scalars,
                       std::size_t first = 0) const {
    State from = s;
    const auto skip = static_cast<std::ptrdiff_t>(first);
    from.p.erase(from.p.begin(), from.p.begin() + skip);
    from.m.erase(from.m.begin(), from.m.begin() + skip), from.v.erase(from.v.begin(), from.v.begin() + skip);
    const State want = wanted(from, Floats(gradient.begin() + skip, gradient.end()), scalars);
    for (const bool in_place : {false, true}) {
      const State is = got(s, gradient, scalars, in_place, first);
      EXPECT_EQ(difference(is.p, want.p), "");
      EXPECT_EQ(difference(is.m, want.m), "");
      EXPECT_EQ(difference(is.v, want.v), "");
    }
  }

  std::unique_ptr<kernels::Kernels> cpu = kernels::make_cpu_kernels(1);
  mutable tensor::InlineStream inline_stream;
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AdamW, Types);

TYPED_TEST(AdamW, IsTheCpusBitForBit) {
  for (const std::int64_t n : {1, 3, 4, 5, 1023, 1024, 5003})
    for (const int t : {1, 2, 1000})
      this->expect_cpu_bits(this->state(n), test::random_elements<float>(n, 9, 40),
                            kernels::step_scalars(3e-4, t == 2 ? 0 : 0.1, 0.9, 0.95, 1e-8, t, 1.0 / 4097));
}

TYPED_TEST(AdamW, NothingIsContracted) {
  // Where every product's rounding shows in the sum that it goes into.
  this->expect_cpu_bits(this->state(5003), test::random_elements<float>(5003, 9),
                        kernels::step_scalars(0.3, 0.9, 0.6, 0.5, 1e-8, 3, 0.7));
}

TYPED_TEST(AdamW, AtAnyAddress) {
  for (const std::size_t first : {1, 2, 3, 5})
    this->expect_cpu_bits(this->state(1500), test::random_elements<float>(1500, 9),
                          kernels::step_scalars(1e-3, 0.1, 0.9, 0.95, 1e-8, 3, 0.5), first);
}

TYPED_TEST(AdamW, OfNumbersThatAreNotOrdinary) {
  auto s = this->state(8);
  Floats gradient = {0.0f, -0.0f, 0x1p-149f, 0x1p-100f, 0x1p127f, INFINITY, -INFINITY, std::nanf("")};
  this->expect_cpu_bits(s, gradient, kernels::step_scalars(1e-3, 0.1, 0.9, 0.95, 1e-8, 1, 1));
  for (auto& x : s.m) x = {};
  for (auto& x : s.v) x = {};
  this->expect_cpu_bits(s, gradient, kernels::step_scalars(1e-3, 0.1, 0.9, 0.95, 0, 1, 1));
  this->expect_cpu_bits(s, gradient, kernels::step_scalars(0, 0, 0.9, 0.999, 1e-30, 1, 1e-30));
}

}  // namespace
}  // namespace holdfast::cuda

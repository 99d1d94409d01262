#pragma once
// Runs the products of gemm_cases.hpp on the GPU of test_gpu.hpp.
#include <gtest/gtest.h>

#include "src/cuda/gemm/gemm.hpp"
#include "tests/cuda/gemm/gemm_cases.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda::test {

/// y's memory after the product.
inline std::vector<std::byte> result_of(Gemm& gemm, const GemmProblem& problem) {
  const DeviceArray<std::byte> a(problem.a.bytes), b(problem.b.bytes), y(problem.y.bytes),
      bias(problem.bias.bytes);
  constexpr int next = kernels::inverse_stride;
  std::vector<float> inverses(2 * next);
  inverses[0] = problem.inverse_a;
  inverses[next] = problem.inverse_b;
  const DeviceArray<float> scales(inverses);
  gemm.run(stream(),
           problem.product(a.data(), b.data(), y.data(), bias.data(), scales.data(), scales.data() + next));
  finish();
  return y.download();
}

/// "" when the product is right, and the same when it is asked for again.
inline std::string wrong_with(Gemm& gemm, const GemmProblem& problem, double rounding_of_sums = 1) {
  const std::vector<std::byte> result = result_of(gemm, problem);
  const std::string wrong = problem.check(result, rounding_of_sums);
  if (!wrong.empty()) return wrong;
  return result_of(gemm, problem) == result ? "" : problem.what.name() + ": other bits when asked again";
}

/// Sizes of 0: nothing is touched, or the bias is all there is.
inline void check_products_of_nothing(Gemm& gemm) {
  for (const DType type : {DType::fp32, DType::bf16})
    for (const bool bias : {false, true}) {
      GemmCase what{3, 5, 0, type, type, type, false, false, false, bias, 2, 1};
      EXPECT_EQ(wrong_with(gemm, GemmProblem(what, 1, false)), "");
      what.m = 0;
      what.k = 4;
      EXPECT_EQ(wrong_with(gemm, GemmProblem(what, 1, false)), "");
      what.m = 3;
      what.n = 0;
      EXPECT_EQ(wrong_with(gemm, GemmProblem(what, 1, false)), "");
    }
  EXPECT_EQ(wrong_with(gemm, GemmProblem({3, 5, 0, DType::bf16, DType::bf16, DType::fp32, false, false, true},
                                         1, false)),
            "");
}

}  // namespace holdfast::cuda::test

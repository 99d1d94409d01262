#pragma once
// cuBLASLt's side of a product, from its documentation: column-major matrices, D = scales * op(A) op(B) + C +
// bias, summed in fp64 and rounded once.
#include "tests/cuda/gemm/gemm_cases.hpp"

namespace holdfast::cuda::test {

inline void column_major_product(const ProductPlan& plan, const ProductPointers& at) {
  const auto element = [](const void* data, const PlanMatrix& m, std::int64_t row, std::int64_t col) {
    return read_element(static_cast<const std::byte*>(data) + (col * m.leading + row) * bytes_of(m.type),
                        m.type);
  };
  for (std::int64_t col = 0; col < plan.d.cols; ++col)
    for (std::int64_t row = 0; row < plan.d.rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < plan.inner(); ++i)
        sum += (plan.transpose_a ? element(at.a, plan.a, i, row) : element(at.a, plan.a, row, i)) *
               (plan.transpose_b ? element(at.b, plan.b, col, i) : element(at.b, plan.b, i, col));
      if (plan.fp8()) sum *= double{*at.scale_a} * double{*at.scale_b};
      if (plan.add) sum += element(at.d, plan.d, row, col);
      if (plan.bias)
        sum += read_element(static_cast<const std::byte*>(at.bias) + row * bytes_of(plan.bias_type),
                            plan.bias_type);
      write_element(static_cast<std::byte*>(at.d) + (col * plan.d.leading + row) * bytes_of(plan.d.type),
                    plan.d.type, static_cast<float>(sum));
    }
}

}  // namespace holdfast::cuda::test

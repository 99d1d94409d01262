// What happens to gradients on the CPU: ordered sums, exact norms, AdamW.
#include <array>
#include <cmath>
#include <cstring>

#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t resident =
    2048;  // elements of a sum that stay in the L1 cache while all leaves stream past

HOLDFAST_VECTOR_WIDTHS void add_to(float* sum, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

HOLDFAST_VECTOR_WIDTHS void adamw_part(AdamW a, StepScalars s, std::int64_t first, std::int64_t end) {
  const float lr_decay = a.decay ? s.lr_decay : 0.0f;
  const float *parameter = a.parameter, *old_m = a.m, *old_v = a.v, *gradient = a.gradient;
  float *new_parameter = a.new_parameter, *new_m = a.new_m, *new_v = a.new_v;
#pragma GCC ivdep  // old and new are the same or apart
  for (std::int64_t i = first; i < end; ++i) {
    const float g = s.gradient_scale * gradient[i];
    const float m = s.beta1 * old_m[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * old_v[i] + s.one_minus_beta2 * (g * g);
    float p = parameter[i];
    p = p - lr_decay * p;
    p = p - s.lr * ((m * s.inverse_bias1) / (std::sqrt(v * s.inverse_bias2) + s.epsilon));
    new_m[i] = m, new_v[i] = v, new_parameter[i] = p;
  }
}

}  // namespace

void CpuKernels::fold(Stream&, float* sum, std::span<const float* const> leaves, std::int64_t count,
                      bool first) {
  run_parts(count, static_cast<std::int64_t>(leaves.size()), [&](std::int64_t low, std::int64_t end) {
    for (std::int64_t at = low; at < end; at += resident) {
      const std::int64_t n = std::min(resident, end - at);
      for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        if (first && leaf == 0)
          std::memcpy(sum + at, leaves[leaf] + at, static_cast<std::size_t>(n) * sizeof(float));
        else
          add_to(sum + at, leaves[leaf] + at, n);
      }
    }
  });
}

void CpuKernels::sum_squares(Stream&, const float* x, std::int64_t count, ExactSum* sum) {
  run_parts(count, 2, [&](std::int64_t low, std::int64_t end) {
    ExactSum part;
    for (std::int64_t i = low; i < end; ++i) part.add_square(x[i]);
#pragma omp critical(holdfast_sum_squares)
    sum->add(part);
  });
}

void CpuKernels::adamw(Stream&, const AdamW& a, const StepScalars& s) {
  run_parts(a.count, 4, [&](std::int64_t low, std::int64_t end) { adamw_part(a, s, low, end); });
}

}  // namespace holdfast::kernels

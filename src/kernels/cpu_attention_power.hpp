#pragma once
// 2^x as attention computes it, plainly and with AVX-512: x = n + r with an integer n; c4 r^4 + ... + c1 r +
// 1, fused step by step, times 2^n; 0 for x below -126; NaN stays NaN. x is at most 127. The polynomial is
// the minimax one of relative error on [-1/2, 1/2] among those with p(0) = 1: below 4e-6, a five hundredth of
// what rounding to bf16 leaves.

namespace holdfast::kernels::power {

constexpr float shift = 12582912.0f + 127.0f;  // 1.5 * 2^23 + 127: the low bits of x + shift are n + 127
constexpr float c4 = 9.66636837e-3f, c3 = 5.59219755e-2f, c2 = 2.40223497e-1f, c1 = 6.93121016e-1f;
constexpr float least = -126.0f;

}  // namespace holdfast::kernels::power

#pragma once
// Rounding of arrays: see kernels::Kernels::convert().
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// out = in, rounded to `to`; fp32 and bf16. `out` is apart from `in`, or begins where it does when `to` is
/// the narrower type. The latter takes a launch for every doubling from 16384 elements on, because blocks
/// have no order among them: what elements [n, 2n) are written over, [n / 2, n), was read by an earlier
/// launch.
void convert(Runtime& runtime, StreamHandle stream, void* out, kernels::DType to, const void* in,
             kernels::DType from, std::int64_t count);

}  // namespace holdfast::cuda
